// Everything a program needs.
#pragma once

#include "pagewheel/cache_eviction_config.hpp"
#include "pagewheel/chat_history.hpp"
#include "pagewheel/continuous_batching_pipeline.hpp"
#include "pagewheel/eviction_policy.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/llm_pipeline.hpp"
#include "pagewheel/log.hpp"
#include "pagewheel/operations.hpp"
#include "pagewheel/prefix_cache.hpp"
#include "pagewheel/results.hpp"
#include "pagewheel/scheduler_config.hpp"
#include "pagewheel/streamer.hpp"
#include "pagewheel/tokenizer.hpp"
