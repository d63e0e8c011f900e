/* What llama.cpp's json.cpp needs of ggml. */
#pragma once

#include <stdlib.h>

#define GGML_ASSERT(condition) ((condition) ? (void)0 : abort())
