#include "pagewheel/generation_handle.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "bindings.hpp"
#include "conversions.hpp"

namespace pagewheel::python {

namespace {

// The thread that steps may hold the handle's lock and want the interpreter's.
using WithoutLock = py::call_guard<Unlocked>;

bool wait(const GenerationHandle& handle, std::optional<double> timeout) {
    const auto begin = std::chrono::steady_clock::now();
    const auto left = [&] {
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
        return timeout ? std::min(*timeout - passed.count(), 0.1) : 0.1;
    };
    for (double seconds = left(); seconds >= 0; seconds = left()) {
        {
            const Unlocked unlocked;
            if (handle.wait(std::chrono::microseconds(int64_t(seconds * 1e6)))) return true;
        }
        raise_pending_signals();
    }
    return handle.wait(std::chrono::microseconds(0));
}

/// Waits as read() does, but for signals too.
void advance(GenerationHandle& handle, GenerationHandle::Until until) {
    for (bool again = true; again;) {
        {
            const Unlocked unlocked;
            again = handle.advance(until);
        }
        raise_pending_signals();
    }
}

GenerationOutputs read(GenerationHandle& handle, bool with_text) {
    advance(handle, GenerationHandle::Until::OUTPUT);
    const Unlocked unlocked;
    return handle.read(with_text);
}

std::vector<GenerationOutput> read_all(GenerationHandle& handle, bool with_text) {
    advance(handle, GenerationHandle::Until::END);
    const Unlocked unlocked;
    return handle.read_all(with_text);
}

py::object outputs(const py::object& handle, bool with_text) {
    return py::module_::import("pagewheel.async_outputs").attr("AsyncOutputs")(handle, with_text);
}

void notify_once(GenerationHandle& handle, py::function callback) {
    const SharedCallable shared = share(std::move(callback));
    const Unlocked unlocked;
    handle.notify_once([shared] {
        const Locked locked;
        call_from_engine("GenerationHandle.notify_once", *shared);
    });
}

}  // namespace

void bind_generation_handle(py::module_& module) {
    using S = GenerationStatus;
    bind_enum<S::RUNNING, S::FINISHED, S::IGNORED, S::CANCEL, S::STOP, S::TIMEOUT>(
        module, "GenerationStatus");
    using R = GenerationFinishReason;
    bind_enum<R::NONE, R::STOP, R::LENGTH, R::TOOL_CALL, R::ERROR>(module,
                                                                   "GenerationFinishReason");

    using T = TokenLogProb;
    py::class_<T>(module, "TokenLogProb", "A token that was likely in a place.")
        .def_readonly("id", &T::id)
        .def_readonly("log_prob", &T::log_prob)
        .def_property_readonly(
            "bytes", [](const T& token) { return py::bytes(token.bytes); },
            "Of the token's text. By itself it need not be UTF-8.")
        .def_property_readonly(
            "text",
            [](const T& token) {
                return py::bytes(token.bytes).attr("decode")("utf-8", "replace");
            },
            "The bytes as text, with U+FFFD for what is no UTF-8.")
        .def("__repr__", [](const py::object& token) {
            return py::str("TokenLogProb(id={}, log_prob={:.4f}, text={!r})")
                .format(token.attr("id"), token.attr("log_prob"), token.attr("text"));
        });

    using O = GenerationOutput;
    py::class_<O>(module, "GenerationOutput", "Tokens of one sequence.")
        .def_readwrite("generated_ids", &O::generated_ids)
        .def_readwrite("generated_log_probs", &O::generated_log_probs)
        .def_readwrite(
            "prompt_log_probs", &O::prompt_log_probs,
            "Of the prompt's tokens from the second on, if echo and logprobs were asked.")
        .def_readonly(
            "top_log_probs", &O::top_log_probs,
            "If logprobs was asked, for each of generated_ids the so many likeliest tokens, best "
            "first, and behind them the generated one if it is not among them. They are of the "
            "logits after penalties and bans, before temperature and filters, which "
            "generated_log_probs of sampling are behind.")
        .def_readonly("prompt_top_log_probs", &O::prompt_top_log_probs,
                      "The same for each of prompt_log_probs, of the model's own logits.")
        .def_readwrite("score", &O::score)
        .def_readwrite(
            "text", &O::text,
            "Of generated_ids, if with_text was asked: up to the first stop string, without "
            "special tokens unless skip_special_tokens is False, never half a character.")
        .def_readonly("num_text_tokens", &O::num_text_tokens,
                      "If with_text was asked: so many of the sequence's tokens, from its first "
                      "one on, have a part in the text given so far. Those of a stop string that "
                      "is cut off have none.")
        .def_readwrite("finish_reason", &O::finish_reason)
        .def_readwrite(
            "stop_reason", &O::stop_reason,
            "With a finish_reason of STOP: the token, or the one of stop_strings, that "
            "ended the sequence. The token comes first if both do. Of several strings "
            "that are complete with one token the one that begins first counts, and "
            "of those that begin at one place the longest. With ERROR: why no token may come. "
            "Beams have none then.");

    using H = GenerationHandle;
    py::class_<H, std::shared_ptr<H>>(
        module, "GenerationHandle",
        "Reads what one request generates, from any thread and any callback. The request is "
        "cancelled once its handle is dropped. In a child that os.fork() made everything raises "
        "RuntimeError.")
        .def("get_status", &H::get_status, WithoutLock())
        .def("can_read", &H::can_read, WithoutLock())
        .def(
            "read", &read, py::arg("with_text") = false,
            "Tokens generated since the last read, by index of the sequence. Waits until there are "
            "some or the request is over, and is empty then; makes steps meanwhile, unless the "
            "thread of start() does. with_text: and the text since the last read with text, of "
            "which the rest comes when the sequence is over. RuntimeError after stop(), cancel() "
            "or drop(), and with the reason if a step failed and the request was cancelled for "
            "it.")
        .def("read_all", &read_all, py::arg("with_text") = false,
             "read() until the request is over: what of each sequence was not read, the best "
             "score first.")
        .def("read_available", &H::read_available, py::arg("with_text") = false, WithoutLock(),
             "read() of what is there, without waiting, also after stop() or cancel(); empty if "
             "nothing is.")
        .def("outputs_so_far", &H::outputs_so_far, py::arg("with_text") = false, WithoutLock(),
             "Everything generated so far, in the order of the sequences, read or not.")
        .def("wait", &wait, py::arg("timeout") = py::none(),
             "Until there is something to read or the request is over, at most timeout seconds; "
             "whether so. RuntimeError where it would have to wait and can_wait() is false.")
        .def("can_wait", &H::can_wait, WithoutLock(),
             "False in callbacks on the thread that steps, which would wait for itself.")
        .def("notify_once", &notify_once, py::arg("callback"),
             "Calls back once, when there is something to read or the request is over: from the "
             "thread that steps, after its step, or at once. The callback may call everything. All "
             "that wait are called, in their order.")
        .def("__aiter__", [](const py::object& handle) { return outputs(handle, false); })
        .def("outputs", &outputs, py::arg("with_text") = false,
             "An asynchronous iterator over what read(with_text) gives, until the request is over. "
             "Iterating over the handle is outputs().")
        .def("stop", &H::stop, py::arg_v("finish_reason", R::NONE, "GenerationFinishReason.NONE"),
             WithoutLock(), "End at the next step and keep what there is.")
        .def("cancel", &H::cancel, WithoutLock(), "End at the next step.")
        .def("drop", &H::drop, WithoutLock(), "cancel(), and what is there counts as read.")
        .def("get_perf_metrics", &H::get_perf_metrics, WithoutLock());
}

}  // namespace pagewheel::python
