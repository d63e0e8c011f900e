#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include "base/check.hpp"

namespace pagewheel {
namespace {

// Rooms below ops do not see OpenVINO; what they throw is its std::runtime_error.
TEST(Errors, ARefusedArgumentIsARuntimeErrorWithItsMessageAlone) {
    try {
        check_argument(false, "heads is ", 3, "; allowed: ", 4);
        FAIL();
    } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "heads is 3; allowed: 4");
    }
}

TEST(Errors, AnArgumentThatIsAllowedThrowsNothing) {
    EXPECT_NO_THROW(check_argument(true, "heads is ", 3));
}

TEST(Errors, ADefectIsNoRuntimeError) {
    EXPECT_THROW(check_invariant(false, "blocks"), std::logic_error);
}

}  // namespace
}  // namespace pagewheel
