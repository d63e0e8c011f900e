"""The one OpenVINO core of the tests' own.

It is never destroyed: CPU plugins that go in the order they came leave a freed signal stack, and a
later Ctrl-C is a crash (src/cpp/src/model/openvino_core.hpp).
"""

import openvino as ov

CORE = ov.Core()
