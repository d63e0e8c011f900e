#include "base/child_process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

namespace pagewheel {
namespace {

using End = ProcessResult::End;
using std::chrono::milliseconds;
using std::chrono::seconds;

ProcessRequest shell(const std::string& script) {
    ProcessRequest request;
    request.command = {"/bin/sh", "-c", script};
    request.time = seconds(30);
    request.most_output = 1 << 24;
    request.kept_errors = 1000;
    return request;
}

TEST(ChildProcess, GetsItsInputAndGivesWhatItSays) {
    const std::string input(3'000'000, 'x');
    ProcessRequest request = shell("cat; echo wrong >&2; exit 7");
    request.input = input;
    const ProcessResult result = run_process(request);
    EXPECT_EQ(result.end, End::EXITED);
    EXPECT_EQ(result.code, 7);
    EXPECT_EQ(result.output, input);
    EXPECT_EQ(result.errors, "wrong\n");
}

TEST(ChildProcess, ArgumentsReachItAsTheyAre) {
    const std::vector<std::string> odd = {"a b", "--c", "'q' \"d\"", "$HOME `id`", "\n", ""};
    ProcessRequest request = shell("for each; do printf '[%s]' \"$each\"; done");
    request.command.emplace_back("sh");
    request.command.insert(request.command.end(), odd.begin(), odd.end());
    EXPECT_EQ(run_process(request).output, "[a b][--c]['q' \"d\"][$HOME `id`][\n][]");
}

TEST(ChildProcess, HasTheEnvironmentItIsGiven) {
    ProcessRequest request = shell("echo $A $HOME");
    request.environment = {"A=b"};
    EXPECT_EQ(run_process(request).output, "b\n");
}

TEST(ChildProcess, InputThatItDoesNotReadIsNoError) {
    const std::string input(3'000'000, 'x');
    ProcessRequest request = shell("exec <&-; echo done");
    request.input = input;
    EXPECT_EQ(run_process(request).output, "done\n");
}

TEST(ChildProcess, IsEndedWhenItsTimeIsOver) {
    const auto begin = std::chrono::steady_clock::now();
    ProcessRequest request = shell("trap '' TERM; echo begun; while :; do :; done");
    request.time = milliseconds(300);
    request.grace = milliseconds(200);
    const ProcessResult result = run_process(request);
    EXPECT_EQ(result.end, End::TIMED_OUT);
    EXPECT_EQ(result.output, "begun\n");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
}

TEST(ChildProcess, CleansUpInItsGrace) {
    ProcessRequest request = shell("trap 'echo cleaned; exit' TERM; while :; do sleep 0.01; done");
    request.time = milliseconds(300);
    request.grace = seconds(20);
    EXPECT_EQ(run_process(request).output, "cleaned\n");
}

TEST(ChildProcess, IsEndedWhenItSaysTooMuch) {
    ProcessRequest request = shell("while :; do echo more; done");
    request.most_output = 1000;
    EXPECT_EQ(run_process(request).end, End::TOO_MUCH_OUTPUT);
}

TEST(ChildProcess, TheEndOfItsErrorsIsKept) {
    ProcessRequest request =
        shell("i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done");
    const std::string errors = run_process(request).errors;
    EXPECT_EQ(errors.size(), 1000u);
    EXPECT_EQ(errors.substr(errors.size() - 10), "line 2999\n");
}

TEST(ChildProcess, WhatItLeavesRunningIsNotWaitedFor) {
    const auto begin = std::chrono::steady_clock::now();
    const ProcessResult result = run_process(shell("sleep 20 & echo done"));
    EXPECT_EQ(result.output, "done\n");
    EXPECT_EQ(result.end, End::EXITED);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
}

TEST(ChildProcess, AProgramThatIsNotThereIsAnError) {
    ProcessRequest request;
    request.command = {"/nowhere/program"};
    request.time = seconds(1);
    EXPECT_THROW(run_process(request), std::system_error);
}

TEST(ChildProcess, HasNoFilesOfThisProcess) {
    const std::string before = run_process(shell("ls /proc/self/fd | wc -l")).output;
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    std::atomic<bool> is_over{false};
    std::thread other([&] {
        while (!is_over) run_process(shell("true"));
    });
    for (int i = 0; i < 20; ++i)
        EXPECT_EQ(run_process(shell("ls /proc/self/fd | wc -l")).output, before);
    is_over = true;
    other.join();
    close(ends[0]);
    close(ends[1]);
}

TEST(ChildProcess, SeveralThreadsLeaveNoZombies) {
    std::vector<std::thread> threads;
    std::atomic<size_t> wrong{0};
    for (int i = 0; i < 8; ++i)
        threads.emplace_back([&, i] {
            for (int j = 0; j < 10; ++j)
                wrong += run_process(shell("exit " + std::to_string(i))).code != i;
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(ChildProcess, AStatusThatAnotherTookIsUnknown) {
    const auto before = signal(SIGCHLD, SIG_IGN);
    const ProcessResult result = run_process(shell("echo said"));
    signal(SIGCHLD, before);
    EXPECT_EQ(result.end, End::UNKNOWN);
    EXPECT_EQ(result.output, "said\n");
}

}  // namespace
}  // namespace pagewheel
