// A thread's share of the processors.
#include "base/process.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <future>
#include <thread>

namespace pagewheel {
namespace {

int priority_of(pid_t number) {
    return getpriority(PRIO_PROCESS, id_t(number));
}

TEST(ThreadUse, AThreadGivesWayAndOthersDoNot) {
    std::promise<pid_t> number;
    std::promise<void> end;
    std::thread other([&] {
        number.set_value(this_thread_number());
        end.get_future().wait();
    });
    const pid_t others = number.get_future().get(), own = this_thread_number();
    const int before = priority_of(own);
    lower_priority(others);
    EXPECT_GT(priority_of(others), before);
    EXPECT_EQ(priority_of(own), before);
    end.set_value();
    other.join();
}

TEST(ThreadUse, TimeOnAProcessorIsThatOfTheThread) {
    std::promise<void> begun, end;
    std::thread other([&] {
        begun.set_value();
        end.get_future().wait();
    });
    begun.get_future().wait();
    const auto own = processor_time(pthread_self()), others = processor_time(other.native_handle());
    while (processor_time(pthread_self()) - own < std::chrono::milliseconds(20)) {
    }
    EXPECT_LT(processor_time(other.native_handle()) - others, std::chrono::milliseconds(20));
    end.set_value();
    other.join();
}

}  // namespace
}  // namespace pagewheel
