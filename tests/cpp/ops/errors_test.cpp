#include "pagewheel/errors.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "base/check.hpp"

namespace pagewheel {
namespace {

template <class Thrown, class Caught>
void expect_caught() {
    try {
        throw Thrown("x is 3");
    } catch (const Caught& error) {
        EXPECT_STREQ(error.what(), "x is 3");
    }
}

template <class Thrown>
void expect_caught_as_openvinos() {
    expect_caught<Thrown, Thrown>();
    expect_caught<Thrown, Error>();
    expect_caught<Thrown, ov::Exception>();
    expect_caught<Thrown, std::runtime_error>();
    expect_caught<Thrown, std::exception>();
}

TEST(Errors, EachIsOpenVinosAndTheStandardsWithItsMessageAlone) {
    expect_caught_as_openvinos<Error>();
    expect_caught_as_openvinos<InvalidArgument>();
    expect_caught_as_openvinos<ModelNotFound>();
    expect_caught_as_openvinos<OutOfRange>();
    expect_caught_as_openvinos<QueueFull>();
    expect_caught_as_openvinos<PipelineFailed>();
    expect_caught<ModelNotFound, InvalidArgument>();
}

TEST(Errors, ARefusedArgumentIsAnInvalidArgument) {
    EXPECT_THROW(check_argument(false, "no"), InvalidArgument);
    EXPECT_THROW(refuse_argument("no"), InvalidArgument);
}

}  // namespace
}  // namespace pagewheel
