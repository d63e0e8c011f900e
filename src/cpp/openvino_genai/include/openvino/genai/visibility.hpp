// The namespace ov::genai, as openvino_genai's programs know it.
#pragma once

// Its headers mark what its library exports. Here is nothing to export.
#ifndef OPENVINO_GENAI_EXPORTS
#define OPENVINO_GENAI_EXPORTS
#endif

/// openvino_genai's names for text, with its defaults; docs/differences.md has what differs still.
/// The names have pagewheel's namespace in the object files, so that a process may hold both
/// libraries.
namespace pagewheel::openvino_genai {}

namespace ov {
namespace genai = ::pagewheel::openvino_genai;
}  // namespace ov
