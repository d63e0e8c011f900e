"""Files of deploy/: they fit the server, and the formats of those who read them.

The image is not built here, and nothing is sent to a cluster.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pagewheel.serve.embedding import Service, make_app
from pagewheel.serve.settings import ServerSettings
from pagewheel.serve_options import read_arguments

DEPLOY = Path(__file__).parents[3] / "deploy"
# Between the end of --shutdown-timeout and the server's.
LAST_SECONDS = 5


def settings_of(arguments: list[str]) -> ServerSettings:
    """What `pagewheel serve` makes of them. Raises where it would refuse them."""
    return read_arguments(arguments)[0]


def paths_of(settings: ServerSettings) -> set[str]:
    return {getattr(route, "path", "") for route in make_app(Service(settings)).routes}


def resources() -> dict[str, Any]:
    """By kind."""
    text = (DEPLOY / "kubernetes.yaml").read_text()
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def container() -> Any:
    return resources()["Deployment"]["spec"]["template"]["spec"]["containers"][0]


def test_the_manifest_fits_the_schemas_of_kubernetes() -> None:
    found = resources()
    assert set(found) == {"Secret", "Deployment", "Service", "PodDisruptionBudget"}
    for each in found.values():
        kubernetes_validate.validate(each, "1.31", strict=True)


def test_a_wrong_manifest_does_not() -> None:
    wrong = resources()["Deployment"]
    wrong["spec"]["template"]["spec"]["terminationGraceSeconds"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.31", strict=True)


def test_selectors_select_the_pods() -> None:
    found = resources()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels


def test_a_pod_has_the_time_that_the_server_takes_to_end() -> None:
    settings = settings_of(container()["args"])
    waits = float(container()["lifecycle"]["preStop"]["exec"]["command"][1])
    grace = resources()["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert waits + settings.limits.shutdown_seconds + LAST_SECONDS <= grace


def test_probes_ask_for_paths_that_there_are() -> None:
    paths = paths_of(settings_of(container()["args"]))
    probes = ("startupProbe", "readinessProbe", "livenessProbe")
    asked = [container()[name]["httpGet"]["path"] for name in probes]
    assert asked == ["/ready", "/ready", "/health"]
    assert paths >= {*asked, "/metrics"}


def dockerfile() -> str:
    return (DEPLOY / "Dockerfile").read_text()


def test_the_image_starts_the_server_without_being_root() -> None:
    found = re.search(r"^ENTRYPOINT (.*)$", dockerfile(), re.M)
    assert found
    entry = json.loads(found[1])
    assert entry[:2] == ["pagewheel", "serve"]
    settings = settings_of([*entry[2:], *container()["args"]])
    assert (settings.host, settings.port) == ("0.0.0.0", container()["ports"][0]["containerPort"])
    user = re.findall(r"^USER (\d+)$", dockerfile(), re.M)
    pod = resources()["Deployment"]["spec"]["template"]["spec"]["securityContext"]
    assert user == [str(pod["runAsUser"])]


def test_the_image_is_told_healthy_by_a_path_that_there_is() -> None:
    found = re.search(r"http://127\.0\.0\.1:8000(/\w+)", dockerfile())
    assert found
    assert found[1] in paths_of(settings_of(["model=model.gguf"]))


def test_hadolint_has_nothing_against_the_dockerfile() -> None:
    result = subprocess.run(
        ["hadolint", str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout


def test_llama_swaps_commands_are_those_of_pagewheel() -> None:
    config = yaml.safe_load((DEPLOY / "llama-swap.yaml").read_text())
    for name, model in config["models"].items():
        command = shlex.split(model["cmd"].replace("${PORT}", "9000"))
        assert command[:2] == ["pagewheel", "serve"]
        settings = settings_of(command[2:])
        assert [each.name for each in settings.models] == [name]
        assert model["proxy"].replace("${PORT}", "9000") == f"http://127.0.0.1:{settings.port}"
        assert model["checkEndpoint"] in paths_of(settings)


def test_litellms_models_call_the_path_of_the_api() -> None:
    config = yaml.safe_load((DEPLOY / "litellm.yaml").read_text())
    for model in config["model_list"]:
        parameters = model["litellm_params"]
        assert parameters["model"].startswith("hosted_vllm/")
        assert parameters["api_base"].endswith("/v1")
        assert parameters["api_key"].startswith("os.environ/")
