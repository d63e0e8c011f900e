// What a thread takes of the processors, and how it gives way to others.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <chrono>

namespace pagewheel {

/// The calling thread's, as the system numbers threads.
pid_t this_thread_number();
/// A thread of this process, which runs, leaves the processors to others that want them. For good:
/// only a privileged process could raise it again.
void lower_priority(pid_t thread_number);
/// Time that a thread which was not joined has had on processors; 0 where it is not known.
std::chrono::nanoseconds processor_time(pthread_t thread);

}  // namespace pagewheel
