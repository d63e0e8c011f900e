#include "kernels/tile_permission.hpp"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pagewheel {

bool tiles_are_permitted() {
#if defined(__linux__) && defined(__x86_64__)
    constexpr int request_permission = 0x1023, tile_data = 18;  // asm/prctl.h; XCR0's bit
    static const bool permitted = syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
    return permitted;
#else
    return false;
#endif
}

}  // namespace pagewheel
