#include "sampling/custom_processor.hpp"

#include <cmath>

#include "base/check.hpp"
#include "kernels/logits.hpp"
#include "sampling/best_tokens.hpp"

namespace pagewheel {
namespace {

LogitsError processor_error(const std::string& message) {
    return LogitsError(message, ErrorCode::processor_failed, "logits_processors");
}

/// Gives what `work` gives. What it throws becomes a LogitsError.
template <class Work>
auto attempt(Work&& work) {
    try {
        return work();
    } catch (const std::exception& error) {
        throw processor_error(concat("a logits processor failed: ", error.what()));
    } catch (...) {
        throw processor_error("a logits processor failed: what it threw is no std::exception");
    }
}

}  // namespace

std::unique_ptr<LogitsProcessor> CustomProcessor::fork_of(const LogitsProcessor& given) {
    auto own = attempt([&] { return given.fork(); });
    if (!own) throw processor_error("a logits processor failed: its fork() gave none");
    return std::unique_ptr<LogitsProcessor>(new CustomProcessor(std::move(own)));
}

void CustomProcessor::process(const LogitsRow& row, const TokenHistory& history) {
    attempt([&] { m_own->process(row, history); });
    const size_t token = kernels::argmax(row.logits, row.size, detected_isa());
    const float logit = row.logits[token];
    if (std::isnan(logit) || (std::isinf(logit) && logit > 0))
        throw processor_error(concat("a logits processor left a logit of ", logit, " for token ",
                                     token,
                                     "; allowed: finite numbers, and minus infinity to ban it"));
}

}  // namespace pagewheel
