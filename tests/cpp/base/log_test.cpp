// Where messages go, whatever the callback does.
#include "log.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace pagewheel {
namespace {

/// Messages go to stderr again when the test is over.
class Log : public testing::Test {
protected:
    ~Log() override { set_log_callback({}); }
};

/// What `work` writes to stderr.
std::string stderr_of(const std::function<void()>& work) {
    testing::internal::CaptureStderr();
    work();
    return testing::internal::GetCapturedStderr();
}

TEST_F(Log, WritesLinesToStderrUnlessThereIsACallback) {
    const auto say = [] {
        log(LogLevel::WARNING, "it is left out");
        log(LogLevel::INFO, "step 1");
    };
    const std::string lines = "pagewheel warning: it is left out\npagewheel step 1\n";
    EXPECT_EQ(stderr_of(say), lines);
    std::vector<std::pair<LogLevel, std::string>> messages;
    set_log_callback(
        [&](LogLevel level, const std::string& text) { messages.emplace_back(level, text); });
    EXPECT_EQ(stderr_of(say), "");
    ASSERT_EQ(messages.size(), 2u);
    EXPECT_EQ(messages[0], std::pair(LogLevel::WARNING, std::string("it is left out")));
    EXPECT_EQ(messages[1], std::pair(LogLevel::INFO, std::string("step 1")));
    set_log_callback({});
    EXPECT_EQ(stderr_of(say), lines);
}

TEST_F(Log, AMessageThatACallbackThrowsAtGoesToStderr) {
    set_log_callback([](LogLevel, const std::string&) { throw std::runtime_error("no"); });
    const auto say = [] { log(LogLevel::WARNING, "it"); };
    EXPECT_EQ(stderr_of(say), "pagewheel warning: it\n");
    set_log_callback([](LogLevel, const std::string&) { throw 7; });
    EXPECT_EQ(stderr_of(say), "pagewheel warning: it\n");
}

TEST_F(Log, ACallbackMayReplaceItselfAndSaySomething) {
    std::vector<std::string> first, second;
    set_log_callback([&](LogLevel, const std::string& text) {
        first.push_back(text);
        log(LogLevel::INFO, "from inside");
        set_log_callback([&](LogLevel, const std::string& text) { second.push_back(text); });
    });
    const std::string written = stderr_of([] {
        log(LogLevel::INFO, "one");
        log(LogLevel::INFO, "two");
    });
    EXPECT_EQ(written, "pagewheel from inside\n");
    EXPECT_EQ(first, std::vector<std::string>{"one"});
    EXPECT_EQ(second, std::vector<std::string>{"two"});
}

TEST_F(Log, WhatACallbackHoldsGoesWithItAndMayCallTheLogThen) {
    struct Farewell {
        ~Farewell() {
            log(LogLevel::INFO, "gone");
            set_log_callback({});
        }
    };
    set_log_callback([held = std::make_shared<Farewell>()](LogLevel, const std::string&) {});
    EXPECT_EQ(stderr_of([] { set_log_callback({}); }), "pagewheel gone\n");
}

TEST_F(Log, EveryMessageOfManyThreadsArrivesWhileCallbacksAreReplaced) {
    constexpr size_t num_threads = 4, each = 2000;
    std::atomic<size_t> count{0}, running{num_threads};
    const auto callback = [&](LogLevel, const std::string&) { ++count; };
    set_log_callback(callback);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < num_threads; ++i)
        threads.emplace_back([&] {
            for (size_t n = 0; n < each; ++n) log(LogLevel::INFO, "it");
            --running;
        });
    while (running > 0) set_log_callback(callback);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(count, num_threads * each);
}

TEST_F(Log, AForkedChildKeepsTheCallbackWhateverOtherThreadsDo) {
    std::atomic<size_t> count{0};
    std::atomic<bool> done{false};
    set_log_callback([&](LogLevel, const std::string&) { ++count; });
    std::thread busy([&] {
        while (!done) log(LogLevel::INFO, "it");
    });
    for (int i = 0; i < 100 && !HasFailure(); ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(10);  // its default action ends a child that waits for ever
            const size_t before = count;
            log(LogLevel::INFO, "it");
            _exit(count == before + 1 ? 0 : 1);
        }
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    done = true;
    busy.join();
}

}  // namespace
}  // namespace pagewheel
