// What the shared library exports, and programs that hide their own names still share with it:
// a hidden type of exception would not be caught.
#pragma once

#define PAGEWHEEL_API __attribute__((visibility("default")))
