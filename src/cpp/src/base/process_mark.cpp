#include "process_mark.hpp"

#include <stdexcept>

#include "check.hpp"

namespace pagewheel {

void ProcessMark::check(const char* what) const {
    if (!is_forked()) return;
    throw std::runtime_error(concat(
        "this ", what, " was made in process ", m_process, ", and its threads are not in ",
        getpid(),
        ", which fork() made of it: start children with exec (multiprocessing's \"spawn\")"));
}

}  // namespace pagewheel
