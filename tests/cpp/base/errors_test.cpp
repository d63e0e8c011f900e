#include "pagewheel/errors.hpp"
#include <gtest/gtest.h>
#include <set>
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

TEST(Errors, AMessageNamesItsParameterOnceForPeopleAndForPrograms) {
    try {
        check_argument(false, "the number of ", ParameterName("heads"), " is ", 3);
        FAIL();
    } catch (const InvalidArgument& error) {
        EXPECT_STREQ(error.what(), "the number of heads is 3");
        EXPECT_EQ(error.parameter(), "heads");
        EXPECT_EQ(error.code(), ErrorCode::invalid_parameter);
    }
}

TEST(Errors, ACodeAmongThePartsIsTheErrors) {
    try {
        refuse_argument(ErrorCode::context_too_long, ParameterName("prompt", "the prompt"),
                        " is long");
    } catch (const InvalidArgument& error) {
        EXPECT_STREQ(error.what(), "the prompt is long");
        EXPECT_EQ(error.parameter(), "prompt");
        EXPECT_EQ(error.code(), ErrorCode::context_too_long);
    }
}

TEST(Errors, EveryCodeHasAName) {
    std::set<std::string> names;
    for (const ErrorCode code : error_codes()) names.insert(to_string(code));
    EXPECT_EQ(names.size(), error_codes().size());
    EXPECT_EQ(to_string(ErrorCode::no_token_possible), std::string("no_token_possible"));
}

TEST(Errors, AnArgumentThatIsAllowedThrowsNothing) {
    EXPECT_NO_THROW(check_argument(true, "heads is ", 3));
}

TEST(Errors, ADefectIsNoRuntimeError) {
    EXPECT_THROW(check_invariant(false, "blocks"), std::logic_error);
}

}  // namespace
}  // namespace pagewheel
