#include "runtime/stepper.hpp"

namespace pagewheel {

void Stepper::start() {
    const std::lock_guard lock(m_mutex);
    if (m_wanted) return;
    m_engine.inbox().open();
    m_wanted = true;
    m_thread = std::thread([this] {
        while (m_wanted) {
            m_engine.inbox().wait_for_work();
            if (!m_wanted) return;
            try {
                m_engine.step();
            } catch (...) {  // the handles of the requests in question tell
            }
        }
    });
}

void Stepper::stop() {
    const std::lock_guard lock(m_mutex);
    if (!m_wanted) return;
    m_wanted = false;
    m_engine.inbox().close();
    m_thread.join();
}

}  // namespace pagewheel
