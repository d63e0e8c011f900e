#include "base/process_mark.hpp"

#include "base/check.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {

void ProcessMark::check(const char* what) const {
    if (!is_forked()) return;
    throw Error(
        concat("this ", what, " was made in process ", m_process, ", and its threads are not in ",
               getpid(),
               ", which fork() made of it: start children with exec (multiprocessing's \"spawn\")"),
        ErrorCode::invalid_state);
}

}  // namespace pagewheel
