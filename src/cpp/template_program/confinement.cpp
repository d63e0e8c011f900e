#include "confinement.hpp"

#include <dirent.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <system_error>
#include <vector>

namespace pagewheel {
namespace {

void check(bool ok, const char* what) {
    if (!ok) throw std::system_error(errno, std::generic_category(), what);
}

/// Of the parent's, which were not marked to be closed here.
void close_inherited_files() {
    DIR* folder = opendir("/proc/self/fd");
    check(folder != nullptr, "cannot list its files");
    std::vector<int> inherited;
    while (const dirent* entry = readdir(folder)) {
        const int file = std::atoi(entry->d_name);
        if (file > 1 && file != dirfd(folder)) inherited.push_back(file);
    }
    closedir(folder);
    for (const int file : inherited) close(file);
}

void limit(int kind, rlim_t value) {
    rlimit limits{};
    check(getrlimit(static_cast<__rlimit_resource>(kind), &limits) == 0, "getrlimit");
    if (limits.rlim_max != RLIM_INFINITY) value = std::min(value, limits.rlim_max);
    limits = {value, value};
    check(setrlimit(static_cast<__rlimit_resource>(kind), &limits) == 0, "setrlimit");
}

void limit_memory(size_t bytes) {
    limit(RLIMIT_AS, bytes);
    // Some systems take a limit and do not keep it.
    void* all = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all != MAP_FAILED) errno = ENOTSUP;
    check(all == MAP_FAILED, "RLIMIT_AS has no effect");
}

/// Builds the filter of system calls: what it does not allow fails with EPERM.
class SystemCallFilter {
public:
    SystemCallFilter() {
        load(offsetof(seccomp_data, arch));
        add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, architecture, 1, 0));
        add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL));
    }

    void allow(uint32_t call) {
        load(offsetof(seccomp_data, nr));
        add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
        add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }

    /// Where the low half of the argument is `value`.
    void allow(uint32_t call, unsigned argument, uint32_t value) {
        load(offsetof(seccomp_data, nr));
        add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3));
        load(offsetof(seccomp_data, args) + 8 * argument);  // little-endian
        add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
        add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }

    /// For good.
    void install() {
        add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
        sock_fprog program{static_cast<unsigned short>(m_code.size()), m_code.data()};
        check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS");
        check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "PR_SET_SECCOMP");
    }

private:
#if defined(__x86_64__)
    static constexpr uint32_t architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
    static constexpr uint32_t architecture = AUDIT_ARCH_AARCH64;
#else
#error "name this processor's AUDIT_ARCH"
#endif

    void load(size_t offset) {
        add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
    }
    void add(sock_filter instruction) { m_code.push_back(instruction); }

    std::vector<sock_filter> m_code;
};

/// What a program needs that computes. No file is opened and no memory becomes code.
void filter_system_calls() {
    SystemCallFilter filter;
    filter.allow(SYS_read, 0, STDIN_FILENO);
    filter.allow(SYS_write, 0, STDOUT_FILENO);
    filter.allow(SYS_mmap, 2, PROT_READ | PROT_WRITE);
    filter.allow(SYS_mprotect, 2, PROT_READ | PROT_WRITE);
    for (const long call :
         {SYS_brk, SYS_munmap, SYS_mremap, SYS_madvise, SYS_futex, SYS_clock_gettime,
          SYS_gettimeofday, SYS_getrandom, SYS_rt_sigreturn, SYS_exit, SYS_exit_group})
        filter.allow(static_cast<uint32_t>(call));
    filter.install();
}

}  // namespace

void confine(size_t max_memory, unsigned max_seconds) {
    check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "PR_SET_PDEATHSIG");
    alarm(max_seconds);
    const std::time_t now = std::time(nullptr);
    check(std::localtime(&now) != nullptr, "there is no local time");
    check(chdir("/") == 0, "chdir");
    close_inherited_files();
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_NPROC, 0);
    limit(RLIMIT_CPU, max_seconds);
    limit_memory(max_memory);
    filter_system_calls();
}

}  // namespace pagewheel
