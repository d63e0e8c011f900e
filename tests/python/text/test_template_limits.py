"""Templates of strangers end within their limits, and whatever happens the next one renders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from convert import tiny_llama
from waiting import cpu_ticks, eventually

from pagewheel.chat_template import render
from pagewheel.convert import convert
from pagewheel.convert.chat_format import derive_chat_format

MESSAGES = [{"role": "user", "content": "Hi"}]
# Lists of two references each, 40 deep: a terabyte to whoever looks at all of it.
DEEP = (
    "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(40) %}"
    "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}"
)
ENDLESS_LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
ENDLESS = {
    "loops": ENDLESS_LOOP,
    "calls": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "compare": DEEP + "{{ ns.a == ns.b }}",
    "print": DEEP + "{{ ns.a }}",
    "tojson": DEEP + "{{ ns.a | tojson }}",
    "pprint": DEEP + "{{ ns.a | pprint }}",
    "error": DEEP + "{{ raise_exception(ns.a) }}",
    "sum": "{{ ([[1] * 10000] * 100000) | sum(start=[]) | length }}",
    "slice": "{{ 'a' | slice(16000000) | list | length }}",
    "power": "{{ (7 ** 99999999) | string }}",
    "cycler": "{% set c = cycler(*range(99999)) %}{% for i in range(99999) %}"
    "{% for j in range(99999) %}{{ c.next() }}{% endfor %}{% endfor %}",
    "arguments": "{{ dict(" + ",".join(f"a{i}=1" for i in range(100000)) + ") }}",
    "source": "{{ 'x' }}" * 1_200_000,
}
LARGE = {
    "repeat": "{{ 'a' * 10**10 }}",
    "list": "{{ [1] * 10**9 }}",
    "ljust": "{{ 'a'.ljust(10**10) }}",
    "center": "{{ 'a' | center(10**10) }}",
    "indent": "{{ 'a' | indent(10**10, true) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent-keys": "{{ ('%(a)s' * 10**5) % {'a': 'x' * 10**6} }}",
    "format": "{{ '{:1000000000}'.format('') }}",
    "nested-format": "{{ '{:>{w}}'.format('', w=10**10) }}",
    "format-indices": "{{ ('{0}' * 10**5).format('x' * 10**6) }}",
    "bytes": "{{ (5).to_bytes(10**10, 'big') }}",
    "json": "{{ [[1]] | tojson(indent=10**9) }}",
    "json-indent": "{{ ([[1]] * 1000) | tojson(indent='x' * 10**6) }}",
    "translate": "{{ ('a' * 10**5).translate({97: 'x' * 10**6}) }}",
    "expandtabs": "{{ ('\t' * 10**6).expandtabs(10**6) }}",
    "wordwrap": "{{ ('a ' * 10**5) | wordwrap(1, wrapstring='x' * 10**6) }}",
    "joiner": "{% set j = joiner('x' * 10**6) %}{% for i in range(999) %}{{ j() }}{% endfor %}",
    "output": "{% set s = 'ab' * 1000000 %}{% for i in range(999) %}{{ s }}{% endfor %}",
    "characters": "{{ 'a' * 17000000 }}",
    "strftime": "{{ strftime_now('%Y' * 5000000) }}",
    "lists": "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = n.l + n.l %}"
    "{% endfor %}",
    **{
        f"doubling-{name}": "{% set n = namespace(s='ab') %}{% for i in range(60) %}"
        f"{doubling}{{% endfor %}}"
        for name, doubling in {
            "concat": "{% set n.s = n.s ~ n.s %}",
            "replace": "{% set n.s = n.s | replace('a', n.s) %}",
            "join": "{% set n.s = n.s.join([n.s, n.s]) %}",
            "block": "{% set n.s %}{{ n.s }}{{ n.s }}{% endset %}",
        }.items()
    },
}
FAILING = {
    "LookupError": "{{ 'a'.encode('no-such-encoding') }}",
    "SyntaxError": "{{ dict(a=1, a=2) }}",
    "nested blocks": "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "filter's arguments": "{{ messages | map() | list }}",
    "OverflowError": "{{ (10**4000) | filesizeformat }}",
    "ValueError": "{{ 10**5000 }}",
    "no loader": "{% include 'file' %}",
    "range": "{% for i in range(10**9) %}{% endfor %}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "recursive loop": "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "parentheses": "{{" + "(" * 5000 + ")" * 5000 + "}}",
    "brackets": "{{" + "[" * 100000 + "]" * 100000 + "}}",
    "nots": "{{ " + "not " * 50000 + "1 }}",
    "number": "{{ " + "9" * 100000 + " }}",
    "surrogate": r"{{ '\ud800' }}",
    "surrogate in an error": r"{{ raise_exception('\ud800') }}",
    "long error": "{{ raise_exception('x' * 10**7) }}",
}


def rendered(template: str, content: str = "Hi", **options: Any) -> str:
    messages = [{"role": "user", "content": content}]
    return render(template, messages, add_generation_prompt=False, **options)


def assert_refused(template: str) -> str:
    """And that the next render works."""
    with pytest.raises(ValueError, match=r"^chat template[:,] ") as caught:
        rendered(template)
    assert rendered("{{ messages[0].content }}") == "Hi"
    return str(caught.value)


@pytest.mark.parametrize("name", ENDLESS)
def test_templates_without_an_end_are_ended(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as short:
        short.setattr("pagewheel.chat_template._MAX_SECONDS", 0.3)
        with pytest.raises(ValueError, match=r"^chat template[:,] "):
            rendered(ENDLESS[name])
    assert rendered("{{ messages[0].content }}") == "Hi"


@pytest.mark.parametrize("name", LARGE)
def test_templates_that_make_too_much_are_ended(name: str) -> None:
    assert_refused(LARGE[name])


@pytest.mark.parametrize("name", FAILING)
def test_every_failure_is_a_short_value_error(name: str) -> None:
    message = assert_refused(FAILING[name])
    assert len(message) < 2000
    message.encode()


def test_what_templates_leave_in_memory_takes_nothing_from_the_next() -> None:
    for i in range(4):  # a constant of the compiled template, which is kept
        assert rendered("{% if 'a' * " + str(60_000_000 + i) + " %}yes{% endif %}") == "yes"
    assert len(rendered("{{ messages[0].content }}", "👋" * 12_000_000)) == 12_000_000


def test_values_that_are_not_json_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be JSON"):
        rendered("x", extra_context={"x": object()})
    looped: list[Any] = []
    looped.append(looped)
    with pytest.raises(ValueError, match="cannot be JSON"):
        rendered("x", extra_context={"x": looped})


def test_numbers_that_json_does_not_know_reach_the_template() -> None:
    assert rendered("{{ x }}", extra_context={"x": [float("nan"), float("-inf")]}) == "[nan, -inf]"


def test_threads_get_their_own_answers() -> None:
    wrong = []

    def work(number: int) -> None:
        for i in range(20):
            text = f"{number}-{i} " * 1000
            if rendered("{{ messages[0].content }}", text) != text:
                wrong.append((number, i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except FileNotFoundError:
        return True


def test_a_killed_process_is_replaced() -> None:
    from pagewheel.template_process import PROCESS

    for _ in range(2):
        rendered("warm")
        assert PROCESS.pid is not None
        os.kill(PROCESS.pid, signal.SIGKILL)
        # Who becomes an orphan's parent may take its time to notice.
        eventually(lambda pid=PROCESS.pid: is_gone(pid), 2)
        assert rendered("next") == "next"


def kill_when_busy(times: int) -> threading.Thread:
    """Kills the process in so many renders, one after the other."""
    from pagewheel.template_process import PROCESS

    def kill() -> None:
        killed: set[int | None] = {None}
        end = time.monotonic() + 30
        while len(killed) <= times and time.monotonic() < end:
            pid = PROCESS.pid
            if PROCESS._is_busy and pid not in killed:
                assert pid is not None
                killed.add(pid)
                begin = cpu_ticks(pid)
                eventually(lambda pid=pid, begin=begin: cpu_ticks(pid) > begin)
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


LONG_LOOP = "{% for i in range(20000) %}{% for j in range(2000) %}{% endfor %}{% endfor %}done"


def test_a_render_whose_process_is_killed_is_tried_again_by_another() -> None:
    from pagewheel.template_process import PROCESS

    rendered("warm")
    before = PROCESS.pid
    killer = kill_when_busy(1)
    assert rendered(LONG_LOOP) == "done"
    killer.join()
    assert PROCESS.pid != before


def test_a_process_that_is_killed_twice_is_no_fault_of_the_template() -> None:
    rendered("warm")
    killer = kill_when_busy(2)
    with pytest.raises(RuntimeError, match="ended by signal 9") as error:
        rendered(ENDLESS_LOOP)
    killer.join()
    assert not isinstance(error.value, ValueError)
    assert rendered("next") == "next"


def test_both_sides_of_a_fork_render() -> None:
    rendered("warm")
    pid = os.fork()
    if pid == 0:
        good = [rendered("{{ messages[0].content }}", str(i)) == str(i) for i in range(20)]
        os._exit(0 if all(good) else 1)
    good = [rendered("{{ messages[0].content }}", str(i)) == str(i) for i in range(20)]
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert all(good)


# PyDLL calls fork() as a program around Python does: with its lock, and without its hooks.
@pytest.mark.parametrize("fork", ["os.fork()", "ctypes.PyDLL(None).fork()"])
def test_a_fork_while_another_thread_renders_does_not_wait_for_it(fork: str) -> None:
    ended = run_python(f"""
import ctypes, os, time
rendered("warm")
template_pid = PROCESS.pid
def endless():
    try:
        rendered(ENDLESS)
    except RuntimeError as error:
        print(error, flush=True)
thread = threading.Thread(target=endless)
thread.start()
while not PROCESS._is_busy:
    time.sleep(0.001)
pid = {fork}
if pid == 0:
    signal.alarm(20)
    answers = [rendered(str(i)) == str(i) for i in range(20)]
    os._exit(0 if all(answers) and PROCESS.pid != template_pid else 1)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
assert thread.is_alive()
killed = set()
while thread.is_alive():  # it is tried again once
    if PROCESS.pid is not None and PROCESS.pid not in killed:
        killed.add(PROCESS.pid)
        os.kill(PROCESS.pid, signal.SIGKILL)
    time.sleep(0.001)
print(code, rendered("next"))
""")
    assert ended.stdout.splitlines()[1:] == ["0 next"], ended.stdout + ended.stderr
    assert "ended by signal 9" in ended.stdout


PRELUDE = """
import signal, sys, threading
from pagewheel.chat_template import render
from pagewheel.template_process import PROCESS
def rendered(template):
    return render(template, [], add_generation_prompt=False)
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
"""


def run_python(
    program: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + program],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | (environment or {}),
    )


INTERRUPTED = """
rendered("warm")
signal.signal(signal.SIGALRM, {handler})
try:
    signal.setitimer(signal.ITIMER_REAL, {seconds})
    rendered(ENDLESS)
except (KeyboardInterrupt, RuntimeError) as error:
    print(repr(error))
print(rendered("next"))
"""


@pytest.mark.parametrize("seconds", [0.001, 0.2])
def test_an_interrupted_render_leaves_the_next_in_step(seconds: float) -> None:
    handler = "signal.default_int_handler"
    ended = run_python(INTERRUPTED.format(seconds=seconds, handler=handler))
    assert ended.stdout == "KeyboardInterrupt()\nnext\n", ended.stderr


def test_rendering_in_a_signal_handler_of_a_render_is_an_error() -> None:
    handler = "lambda *_: rendered('inner')"
    ended = run_python(INTERRUPTED.format(seconds=0.2, handler=handler))
    expected = "RuntimeError('this thread is rendering a chat template already')\nnext\n"
    assert ended.stdout == expected, ended.stderr


def test_nothing_is_left_at_exit_also_while_a_thread_renders() -> None:
    ended = run_python("""
rendered("warm")
threading.Thread(target=rendered, args=(ENDLESS,), daemon=True).start()
print(PROCESS.pid)
""")
    assert ended.returncode == 0, ended.stderr
    eventually(lambda: is_gone(int(ended.stdout)), 2)


def test_a_render_that_the_exit_ends_prints_nothing() -> None:
    """A daemon thread that prints while the interpreter ends may abort it."""
    ended = run_python("""
import atexit, time
rendered("warm")
def wait():
    PROCESS.end_at_exit()
    time.sleep(0.5)  # for the thread to see it
atexit.register(wait)
threading.Thread(target=rendered, args=(ENDLESS,), daemon=True).start()
while not PROCESS._is_busy:
    time.sleep(0.001)
""")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_parent_that_is_killed_takes_the_process_along() -> None:
    ended = run_python("""
import os
rendered("warm")
print(PROCESS.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""")
    assert ended.returncode == -signal.SIGKILL
    eventually(lambda: is_gone(int(ended.stdout)), 2)


def test_ctrl_c_at_a_terminal_spares_the_process() -> None:
    ended = run_python("""
import os
os.setpgid(0, 0)
rendered("warm")
pid = PROCESS.pid
try:
    os.killpg(0, signal.SIGINT)
except KeyboardInterrupt:
    pass
print(rendered("next"), pid == PROCESS.pid)
""")
    assert ended.stdout == "next True\n", ended.stderr


@pytest.mark.parametrize("executable", ["", "program"])
def test_an_embedded_python_finds_an_interpreter(executable: str, tmp_path: Path) -> None:
    """sys.executable may be the program around it, which is not to be started again."""
    if executable:
        (tmp_path / executable).write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
        (tmp_path / executable).chmod(0o755)
        executable = str(tmp_path / executable)
    ended = run_python(f"""
sys.executable = sys._base_executable = {executable!r}
print(rendered("found"))
""")
    assert ended.stdout == "found\n", ended.stderr
    assert not (tmp_path / "started").exists()


def test_where_no_process_starts_nothing_is_rendered() -> None:
    ended = run_python('rendered("x")', {"PAGEWHEEL_PYTHON": "/nowhere/python"})
    assert "RuntimeError" in ended.stderr
    assert "/nowhere/python" in ended.stderr


def test_where_limits_are_refused_nothing_is_rendered(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"""#!{sys.executable}
import os, resource, sys

def refuse(*_):
    raise OSError("not permitted")

resource.setrlimit = refuse
sys.argv = sys.argv[4:]
exec(sys.argv[0])
""")
    python.chmod(0o755)
    ended = run_python('rendered("x")', {"PAGEWHEEL_PYTHON": str(python)})
    assert "RuntimeError" in ended.stderr
    assert "may not limit itself: not permitted" in ended.stderr


SLOW = (
    "{% for i in range(300) %}{% for j in range(1000) %}{% endfor %}{% endfor %}"
    "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}{% endfor %}"
)


def test_slow_renders_do_not_add_up_while_converting(monkeypatch: pytest.MonkeyPatch) -> None:
    def pieces() -> Any:
        return derive_chat_format(SLOW, bos_token="", eos_token="")

    monkeypatch.setattr("pagewheel.convert.chat_format._MAX_SECONDS", 0.2, raising=False)
    assert pieces() is None


def test_a_file_whose_template_has_no_end_converts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagewheel.chat_template._MAX_SECONDS", 0.3)
    template = DEEP + "{{ ns.a == ns.b }}"
    file = tiny_llama.write(tmp_path / "a.gguf", metadata={"tokenizer.chat_template": template})
    folder = convert(file, tmp_path / "out", progress=False)
    assert '"chat_format": null' in (folder / "pagewheel.json").read_text()
