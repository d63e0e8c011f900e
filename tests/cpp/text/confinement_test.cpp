#include "template_program/confinement.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace pagewheel {
namespace {

constexpr int could_not_confine = 200;

/// In a child that has confined itself: what `attempt` gives, which is less than 100.
template <class Attempt>
int confined(const Attempt& attempt) {
    const pid_t child = fork();
    if (child == 0) {
        try {
            confine(size_t(8) << 30, 5);
        } catch (...) {
            _exit(could_not_confine);
        }
        _exit(attempt());
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

/// The error number of a call, or 0 where it went well.
template <class Call>
int refused(const Call& call) {
    return confined([&] { return call() == -1 ? errno : 0; });
}

class Confinement : public testing::Test {
    void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        GTEST_SKIP() << "a sanitizer's runtime needs more than a confined process has";
#endif
    }
};

TEST_F(Confinement, LeavesComputing) {
    EXPECT_EQ(confined([] {
                  std::vector<int> numbers(1 << 20, 1);
                  return numbers[12345];
              }),
              1);
}

TEST_F(Confinement, OpensNoFile) {
    EXPECT_EQ(refused([] { return open("/etc/passwd", O_RDONLY); }), EPERM);
    EXPECT_EQ(refused([] { return open("/tmp/made-by-a-template", O_CREAT | O_WRONLY, 0600); }),
              EPERM);
}

TEST_F(Confinement, ReachesNoNetwork) {
    EXPECT_EQ(refused([] { return socket(AF_INET, SOCK_STREAM, 0); }), EPERM);
}

TEST_F(Confinement, StartsNothing) {
    EXPECT_EQ(refused([] { return int(fork()); }), EPERM);
    char name[] = "/bin/true";
    char* const arguments[] = {name, nullptr};
    EXPECT_EQ(refused([&] { return execve(name, arguments, nullptr); }), EPERM);
}

TEST_F(Confinement, SignalsNobody) {
    const pid_t parent = getpid();
    EXPECT_EQ(refused([&] { return kill(parent, 0); }), EPERM);
}

TEST_F(Confinement, MakesNoMemoryThatRuns) {
    EXPECT_EQ(confined([] {
                  const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
                  void* page = mmap(nullptr, 4096, PROT_READ | PROT_EXEC, flags, -1, 0);
                  return page == MAP_FAILED ? errno : 0;
              }),
              EPERM);
}

TEST_F(Confinement, HasNoFilesOfItsParent) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    EXPECT_NE(refused([&] { return int(write(ends[1], "x", 1)); }), 0);
    close(ends[1]);
    char byte;
    EXPECT_EQ(read(ends[0], &byte, 1), 0);
    close(ends[0]);
}

TEST_F(Confinement, HasNoMoreMemory) {
    EXPECT_EQ(confined([] {
                  void* all = mmap(nullptr, size_t(8) << 30, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
                  return all == MAP_FAILED ? errno : 0;
              }),
              ENOMEM);
}

}  // namespace
}  // namespace pagewheel
