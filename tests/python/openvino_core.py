"""The one OpenVINO core of the tests' own.

It is never destroyed: CPU plugins that go in the order they came leave a freed signal stack, and a
later Ctrl-C is a crash (src/cpp/src/model/openvino_core.hpp).
"""

import openvino as ov
import openvino_tokenizers  # noqa: F401  (from then on a core has its operations)

CORE = ov.Core()
