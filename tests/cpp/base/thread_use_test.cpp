// A thread's share of the processors.
#include "base/process.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <future>
#include <thread>
#include <utility>

namespace pagewheel {
namespace {

TEST(RunningThread, GivesWayAndOthersDoNot) {
    std::promise<std::pair<pid_t, RunningThread>> begun;
    std::promise<void> end;
    std::thread other([&] {
        begun.set_value({gettid(), RunningThread()});
        end.get_future().wait();
    });
    const auto [number, running] = begun.get_future().get();
    const int before = sched_getscheduler(gettid());
    running.lower_priority();
    EXPECT_EQ(sched_getscheduler(number), SCHED_IDLE);
    EXPECT_EQ(sched_getscheduler(gettid()), before);
    end.set_value();
    other.join();
}

TEST(RunningThread, TimeOnAProcessorIsItsOwn) {
    std::promise<RunningThread> begun;
    std::promise<void> end;
    std::thread other([&] {
        begun.set_value(RunningThread());
        end.get_future().wait();
    });
    const RunningThread own, others = begun.get_future().get();
    const auto before = own.processor_time(), before_of_other = others.processor_time();
    while (own.processor_time() - before < std::chrono::milliseconds(20)) {
    }
    EXPECT_LT(others.processor_time() - before_of_other, std::chrono::milliseconds(20));
    end.set_value();
    other.join();
}

}  // namespace
}  // namespace pagewheel
