// Text of handles: matched, read in pieces, held back, dropped.
#include "support/engine_fixture.hpp"

#include <malloc.h>

#include <functional>
#include <random>

#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

using EngineText = EngineTest;

TEST_F(EngineText, AHundredRequestsWithStopStringsEndWhereTheirTextDoes) {
    std::mt19937 random(1);
    std::vector<std::pair<GenerationHandle, std::string>> requests;
    std::vector<int64_t> firsts;
    for (size_t i = 0; i < 100; ++i) {
        const int64_t first = int64_t(random() % 50);
        const size_t begin = size_t(random() % 20), length = 1 + random() % 4;
        Tokens following;
        for (size_t k = 0; k < 30; ++k) following.push_back((first + 1 + int64_t(k)) % 100);
        GenerationConfig config = greedy(30);
        config.stop_strings = {letters(following).substr(begin, length)};
        requests.emplace_back(submit({first}, config), *config.stop_strings.begin());
        firsts.push_back(first);
    }
    finish();
    for (size_t i = 0; i < requests.size(); ++i) {
        const auto& [handle, stop] = requests[i];
        const std::string text = letters(generated(handle));
        ASSERT_GE(text.size(), stop.size()) << i;
        EXPECT_EQ(text.find(stop), text.size() - stop.size()) << i << " from " << firsts[i];
        EXPECT_EQ(handle.outputs_so_far().at(0).finish_reason, Reason::STOP);
    }
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(EngineText, TheStopReasonIsTheTokenElseTheFirstAndLongestString) {
    const auto stopped_by = [&](const std::set<std::string>& strings, std::set<int64_t> tokens) {
        GenerationConfig config = greedy(9);
        config.ignore_eos = false;
        config.stop_strings = strings;
        config.stop_token_ids = std::move(tokens);
        GenerationHandle handle = submit({1}, config);
        finish();
        return handle.read_available(true).at(0).stop_reason;
    };
    const std::string b = letters({3}), c = letters({4}), bc = letters({3, 4});
    EXPECT_EQ(stopped_by({c, bc}, {}), StopReason(bc));
    EXPECT_EQ(stopped_by({b, bc}, {}), StopReason(b));  // complete a token earlier
    EXPECT_EQ(stopped_by({bc}, {4}), StopReason(int64_t(4)));
    EXPECT_EQ(stopped_by({"none"}, {}), StopReason());
}

TEST_F(EngineText, ReadTellsTheReasonOfAStopOnce) {
    for (const bool with_text : {false, true}) {
        GenerationHandle handle = submit({1}, greedy(9));
        engine->step();
        handle.read(with_text);
        handle.stop(Reason::STOP);
        engine->step();
        EXPECT_FALSE(handle.can_read());
        EXPECT_THROW(handle.read(with_text), std::runtime_error);
        EXPECT_EQ(handle.read_available(with_text).at(0).finish_reason, Reason::STOP);
        EXPECT_TRUE(handle.read_available(with_text).empty());
    }
}

TEST_F(EngineText, TextIsReadOnceInPiecesThatJoinToTheWhole) {
    GenerationHandle handle = submit({1}, greedy(6));
    std::string text;
    while (engine->has_work()) {
        engine->step();
        for (const auto& [index, output] : handle.read(true)) {
            EXPECT_EQ(output.text, letters(output.generated_ids));
            text += output.text;
        }
    }
    EXPECT_EQ(text, "cdefgh");
    EXPECT_TRUE(handle.read(true).empty());
    EXPECT_FALSE(handle.can_read());
    EXPECT_EQ(handle.outputs_so_far(true).at(0).text, text);
    EXPECT_EQ(handle.outputs_so_far().at(0).text, "");
}

TEST_F(EngineText, HeldBackTextComesWithTheEndAlsoWithoutTokens) {
    GenerationConfig config = greedy(50);
    config.stop_strings = {"ghx"};  // "gh" is held back: it may be the beginning
    GenerationHandle handle = submit({4}, config);
    std::string text;
    for (size_t i = 0; i < 3; ++i) {  // f, g, h
        engine->step();
        for (const auto& [index, output] : handle.read_available(true)) text += output.text;
    }
    EXPECT_EQ(text, "f");
    handle.stop();
    EXPECT_FALSE(handle.can_read());
    engine->step();
    const GenerationOutputs rest = handle.read_available(true);
    EXPECT_EQ(rest.at(0).text, "gh");
    EXPECT_TRUE(rest.at(0).generated_ids.empty());
    EXPECT_FALSE(handle.can_read());
}

TEST_F(EngineText, TextThatIsHeldBackIsNotLostWhereTokensAreReadWithoutIt) {
    GenerationConfig config = greedy(50);
    config.stop_strings = {"ghx"};
    GenerationHandle handle = submit({4}, config);
    std::string text;
    for (size_t i = 0; i < 3; ++i) {  // f, g, h
        engine->step();
        for (const auto& [index, output] : handle.read_available(true)) text += output.text;
    }
    handle.read_available();
    handle.stop();
    engine->step();
    handle.read_available();
    for (const auto& [index, output] : handle.read_available(true)) text += output.text;
    EXPECT_EQ(text, "fgh");
    EXPECT_TRUE(handle.read_available(true).empty());
    EXPECT_FALSE(handle.can_read());
}

TEST_F(EngineText, TextThatWasDroppedDoesNotComeWithTheTokenOfAStepUnderWay) {
    GenerationHandle handle = submit({1}, greedy(9));
    for (size_t i = 0; i < 4; ++i) engine->step();
    model->before_run = [&](const Batch&) { handle.drop(); };
    engine->step();
    const GenerationOutputs late = handle.read_available(true);
    ASSERT_EQ(late.count(0), 1u);
    EXPECT_EQ(late.at(0).text, letters(late.at(0).generated_ids));
    finish();
}

TEST_F(EngineText, ADecoderThatFailsOnceNeitherLosesNorDoublesWhatIsRead) {
    bool fails = false;
    const auto decoder = [&](const Tokens& tokens) {
        if (tokens.back() == 6 && std::exchange(fails, false)) throw std::runtime_error("no text");
        return letters(tokens);
    };
    EngineParts parts;
    parts.model = std::make_unique<ScriptedModel>();
    parts.decoders = {decoder, letters};
    engine = std::make_shared<Engine>(std::move(parts), scheduler());
    GenerationHandle handle = submit({1}, greedy(9));
    Tokens tokens;
    std::string text;
    const auto read = [&] {
        for (const auto& [index, output] : handle.read(true)) {
            tokens.insert(tokens.end(), output.generated_ids.begin(), output.generated_ids.end());
            text += output.text;
        }
    };
    engine->step();
    read();
    for (size_t i = 0; i < 6; ++i) engine->step();
    fails = true;
    EXPECT_THROW(read(), std::runtime_error);
    finish();
    read();
    EXPECT_EQ(tokens, generated(handle));
    EXPECT_EQ(text, letters(generated(handle)));
}

/// What the heap holds.
size_t heap_bytes() {
    return mallinfo2().uordblks;
}

TEST_F(EngineText, SequencesBeamsAndRequestsOfOneConfigShareWhatItNames) {
    GenerationConfig config = greedy(6);
    for (char letter = 'a'; config.stop_strings.size() < 6; ++letter)
        config.stop_strings.insert(std::string(9990, 'z') + letter);
    for (int64_t i = 0; i < 60; ++i) {
        config.bad_words_ids.emplace_back(1000, 50);
        config.bad_words_ids.back()[0] = i;
    }
    GenerationConfig samples = config, beams = config;
    samples.do_sample = true;
    samples.num_return_sequences = 128;
    beams.num_beams = 64;
    SchedulerConfig wide = scheduler();
    wide.num_kv_blocks = 2000;
    make(wide);
    std::vector<GenerationHandle> handles;
    const size_t before = heap_bytes();
    handles.push_back(submit({1}, samples));
    handles.push_back(submit({1}, beams));
    for (size_t i = 0; i < 100; ++i) {  // what is a request's own keeps nobody from sharing
        config.timeout = 1000.0f + float(i);
        config.rng_seed = i;
        config.priority = int(i);
        config.cache_salt = std::to_string(i);
        handles.push_back(submit({1}, config));
    }
    for (size_t i = 0; i < 4; ++i) engine->step();
    // Three configs: of each its texts and tokens, 1 MB of the tokens in two forms, and an
    // automaton of 10,000 states.
    EXPECT_LT(heap_bytes() - before, size_t(30) << 20);
    finish();
}

TEST_F(EngineText, ConfigsThatDifferShareTheAutomatonOfTheSameStopStrings) {
    GenerationConfig config = greedy(6);
    for (char letter = 'a'; config.stop_strings.size() < 6; ++letter)
        config.stop_strings.insert(std::string(9990, char(letter + 1)) + letter);
    std::vector<GenerationHandle> handles;
    const size_t before = heap_bytes();
    for (size_t i = 0; i < 40; ++i) {
        config.max_new_tokens = 6 + i;
        config.include_stop_str_in_output = i % 2;
        handles.push_back(submit({1}, config));
    }
    // One automaton of 60,000 states, 5 MB; of each config its texts.
    EXPECT_LT(heap_bytes() - before, size_t(16) << 20);
    finish();
}

TEST_F(EngineText, RequestsThatShareAConfigKeepSeedsDeadlinesPrioritiesAndSaltsOfTheirOwn) {
    GenerationConfig config = greedy(8);
    config.do_sample = true;
    config.temperature = 100.0f;  // all tokens are about as likely
    const auto alone = [&](uint64_t seed) {
        config.rng_seed = seed;
        const GenerationHandle handle = submit({1}, config);
        finish();
        return generated(handle);
    };
    const Tokens first = alone(1), second = alone(2);
    ASSERT_NE(first, second);
    std::vector<Handle> states;
    for (const uint64_t seed : {1, 2}) {
        config.rng_seed = seed;
        config.timeout = 1000.0f * float(seed);
        config.priority = int(seed);
        config.cache_salt = std::to_string(seed);
        states.push_back(submit_state({1}, config));
    }
    const Request &one = *states[0]->request, &two = *states[1]->request;
    EXPECT_EQ(one.prepared, two.prepared);
    EXPECT_GT(*two.deadline - *one.deadline, std::chrono::seconds(900));
    for (const Request* request : {&one, &two}) {
        const Sequence& sequence = *request->sequences.front();
        EXPECT_EQ(sequence.priority, request == &one ? 1 : 2);
        EXPECT_EQ(sequence.prefix_key.salt, request == &one ? "1" : "2");
    }
    finish();
    EXPECT_EQ(generated(GenerationHandle(states[0])), first);
    EXPECT_EQ(generated(GenerationHandle(states[1])), second);
}

/// Cannot be copied while `is_stuck`, as where memory is out.
struct StickyDecoder {
    const bool* is_stuck;

    explicit StickyDecoder(const bool* stuck) : is_stuck(stuck) {}
    StickyDecoder(const StickyDecoder& other) : is_stuck(other.is_stuck) {
        if (*is_stuck) throw std::bad_alloc();
    }
    std::string operator()(const Tokens& tokens) const { return letters(tokens); }
};

TEST_F(EngineText, ARequestThatCannotBeEndedProperlyIsToldAllTheSame) {
    for (const bool is_cancelled : {false, true}) {
        bool is_stuck = false;
        EngineParts parts;
        parts.model = std::make_unique<ScriptedModel>();
        parts.decoders = {StickyDecoder(&is_stuck), letters};
        engine = std::make_shared<Engine>(std::move(parts), scheduler());
        GenerationConfig beams = greedy(4);
        beams.num_beams = beams.num_return_sequences = 2;
        GenerationHandle handle = submit({1}, beams), other = submit({2}, greedy(9));
        for (size_t i = 0; i < 3; ++i) engine->step();
        if (is_cancelled) handle.cancel();  // else they end by their length
        is_stuck = true;                    // the texts of its beams cannot be made
        EXPECT_ANY_THROW(engine->step());
        for (const GenerationHandle& one : {handle, other}) {
            EXPECT_EQ(one.get_status(), Status::CANCEL) << is_cancelled;
            EXPECT_THROW(one.outputs_so_far(), PipelineFailed) << is_cancelled;
            EXPECT_TRUE(one.wait(std::chrono::seconds(0)));
        }
        EXPECT_FALSE(engine->has_work());
        is_stuck = false;
    }
}

TEST_F(EngineText, EachTokenIsDecodedOnceWhoeverWantsItsText) {
    std::vector<size_t> lengths;
    const auto counted = [&](const Tokens& tokens) {
        lengths.push_back(tokens.size());
        return letters(tokens);
    };
    EngineParts parts;
    parts.model = std::make_unique<ScriptedModel>();
    parts.decoders = {counted, letters};
    engine = std::make_shared<Engine>(std::move(parts), scheduler());
    GenerationConfig config = greedy(8);
    GenerationHandle unread = submit({1}, config);
    finish();
    EXPECT_TRUE(lengths.empty());  // nobody asked
    EXPECT_EQ(unread.outputs_so_far(true).at(0).text, "cdefghij");
    EXPECT_EQ(unread.read(true).at(0).text, "cdefghij");
    EXPECT_EQ(lengths, (std::vector<size_t>{8}));  // at once
    lengths.clear();
    config.stop_strings = {"zz"};
    GenerationHandle matched = submit({1}, config);
    while (engine->has_work()) {
        engine->step();
        matched.read(true);
    }
    EXPECT_EQ(matched.outputs_so_far(true).at(0).text, "cdefghij");
    EXPECT_EQ(lengths.size(), 8u);
}

}  // namespace
}  // namespace pagewheel
