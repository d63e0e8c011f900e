// What the shared library exports.
#pragma once

#ifdef PAGEWHEEL_BUILDING
#define PAGEWHEEL_API __attribute__((visibility("default")))
#else
#define PAGEWHEEL_API
#endif
