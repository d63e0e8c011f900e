// Random parts, regular and others, against std::regex.
#include "grammar/transition_network.hpp"

#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <set>

#include "grammar/llguidance_fixture.hpp"

namespace pagewheel {
namespace {

using Config = StructuredOutputConfig;
using Node = Config::StructuralTag;
using Random = std::mt19937;

/// A part, its texts as an expression, and some of them.
struct Part {
    Node node;
    std::string expression;
    std::set<std::string> texts;
};

size_t below(Random& random, size_t count) {
    return std::uniform_int_distribution<size_t>(0, count - 1)(random);
}

// JSON begins with no character of a regular part, which would take as much as it can of it.
const std::vector<std::string> constants{"a", ", a", ", ab", ",", "<", ">", "ab=", ", b="};

Part constant_part(Random& random) {
    const std::string text = constants[below(random, constants.size())];
    return {Config::ConstString{text}, text, {text}};
}

Part regex_part(Random& random) {
    const std::vector<Part> all{{Config::Regex{"[ab]*"}, "[ab]*", {"", "ab", "b"}},
                                {Config::Regex{", (?:a|ab)"}, ", (?:a|ab)", {", a", ", ab"}},
                                {Config::Regex{"(?:, b)?"}, "(?:, b)?", {"", ", b"}},
                                {Config::Regex{"a+,"}, "a+,", {"a,", "aa,"}}};
    return all[below(random, all.size())];
}

/// Without white space.
Config::JSONSchema compact(const std::string& members) {
    return {R"({"x-guidance":{"whitespace_flexible":false},)" + members + '}'};
}

Part json_part(Random& random) {
    const std::vector<Part> all{
        {compact(R"("enum":[1,22])"), "(?:1|22)", {"1", "22"}},
        {compact(R"("type":"boolean")"), "(?:true|false)", {"true", "false"}},
        {compact(R"("const":[])"), "\\[\\]", {"[]"}}};
    return all[below(random, all.size())];
}

/// A few texts of `a`, each with one of `b`.
std::set<std::string> joined(Random& random, const std::set<std::string>& a,
                             const std::set<std::string>& b) {
    std::set<std::string> texts;
    for (const std::string& first : a)
        for (const std::string& second : b)
            if (a.size() * b.size() <= 12 || below(random, a.size() * b.size()) < 12)
                texts.insert(first + second);
    return texts;
}

Part random_part(Random& random, size_t depth);

Part sequence_part(Random& random, size_t depth) {
    auto all = std::make_shared<Config::Concat>();
    Part result{all, "", {""}};
    for (size_t i = 2 + below(random, 4); i > 0; --i) {
        const Part part = random_part(random, depth - 1);
        all->elements.push_back(part.node);
        result.expression += part.expression;
        result.texts = joined(random, result.texts, part.texts);
    }
    return result;
}

Part union_part(Random& random, size_t depth) {
    auto all = std::make_shared<Config::Union>();
    Part result{all, "", {}};
    for (size_t i = 2 + below(random, 2); i > 0; --i) {
        const Part part = random_part(random, depth - 1);
        all->elements.push_back(part.node);
        result.expression += (result.expression.empty() ? "(?:" : "|") + part.expression;
        result.texts.insert(part.texts.begin(), part.texts.end());
    }
    result.expression += ")";
    return result;
}

Part list_part(Random& random, size_t depth) {
    const Part part = random_part(random, depth - 1);
    auto list = std::make_shared<Config::TagsWithSeparator>();
    list->tags = {{"", part.node, ""}};
    list->at_least_one = below(random, 2) == 0;
    list->stop_after_first = below(random, 2) == 0;
    list->separator = std::vector<std::string>{"", ",", ", "}[below(random, 3)];
    Part result{list, "(?:" + part.expression + ")", part.texts};
    if (!list->stop_after_first) {
        result.expression += "(?:" + list->separator + part.expression + ")*";
        const auto more = joined(random, {list->separator}, part.texts);
        const auto two = joined(random, part.texts, more);
        const auto three = joined(random, two, more);
        result.texts.insert(two.begin(), two.end());
        result.texts.insert(three.begin(), three.end());
    }
    if (list->at_least_one) return result;
    result.expression = "(?:" + result.expression + ")?";
    result.texts.insert("");
    return result;
}

Part tag_part(Random& random, size_t depth) {
    const Part begin = constant_part(random), end = constant_part(random);
    const Part part = random_part(random, depth - 1);
    return {std::make_shared<Config::Tag>(Config::Tag{begin.expression, part.node, end.expression}),
            begin.expression + part.expression + end.expression,
            joined(random, joined(random, begin.texts, part.texts), end.texts)};
}

Part random_part(Random& random, size_t depth) {
    const size_t kind = below(random, 8);
    if (kind == 0 || (depth == 0 && kind < 3)) return constant_part(random);
    if (kind == 1 || (depth == 0 && kind < 5)) return regex_part(random);
    if (kind == 2 || depth == 0) return json_part(random);
    if (kind == 3) return union_part(random, depth);
    if (kind == 4) return tag_part(random, depth);
    if (kind == 5) return list_part(random, depth);
    return sequence_part(random, depth);
}

/// The part's texts, and such with a change.
std::set<std::string> tried(Random& random, const Part& part) {
    const std::vector<std::string> pieces{"a", ", a", ", b", ",", "<", ">", "1", "true", " ", "="};
    std::set<std::string> texts = part.texts;
    for (const std::string& text : part.texts)
        for (int i = 0; i < 3; ++i) {
            const size_t place = below(random, text.size() + 1);
            const std::string piece = pieces[below(random, pieces.size())];
            texts.insert(text.substr(0, place) + piece + text.substr(place));
            texts.insert(text.substr(0, place) + text.substr(std::min(place + 1, text.size())));
        }
    return texts;
}

class TransitionNetworks : public Llguidance {
protected:
    bool allows_text(const Node& node, const std::string& text) {
        Config config;
        config.compound_grammar = node;
        const auto matcher = compiler.compile(config)->start({});
        return accepts(*matcher, text) && matcher->is_accepting();
    }
};

TEST_F(TransitionNetworks, RandomPartsAcceptExactlyTheirTexts) {
    Random random(7);
    size_t num_accepted = 0, num_refused = 0, num_wrong = 0;
    for (int round = 0; round < 400; ++round) {
        const Part part = random_part(random, 3);
        const std::regex expression(part.expression);
        for (const std::string& text : tried(random, part)) {
            const bool is_member = std::regex_match(text, expression);
            ++(is_member ? num_accepted : num_refused);
            if (allows_text(part.node, text) == is_member) continue;
            ADD_FAILURE() << '\'' << text << "' of " << part.expression << " is member "
                          << is_member;
            if (++num_wrong == 20) return;
            break;
        }
    }
    EXPECT_GT(num_accepted, 3000u);
    EXPECT_GT(num_refused, 4000u);
}

std::shared_ptr<Config::TagsWithSeparator> optional_part(const Node& node) {
    auto list = std::make_shared<Config::TagsWithSeparator>();
    list->tags = {{"", node, ""}};
    list->stop_after_first = true;
    return list;
}

TEST_F(TransitionNetworks, OptionalPartsThatBeginAlikeStandBeforeOneThatIsNotRegular) {
    const auto member = [](const std::string& name, const Node& value) {
        auto all = std::make_shared<Config::Concat>();
        all->elements = {Config::ConstString{", " + name + "="}, value};
        return optional_part(all);
    };
    auto list = std::make_shared<Config::Concat>();
    list->elements = {Config::ConstString{"[1"}, member("u", Config::Regex{"[0-9]"}),
                      member("v", Config::Regex{"[0-9]"}),
                      member("o", Config::JSONSchema{R"({"type":"integer"})"}),
                      Config::ConstString{"]"}};
    for (const char* text : {"[1]", "[1, u=1, o=2]", "[1, v=1, o=2]", "[1, o=2]",
                             "[1, u=1, v=2, o=3]", "[1, u=1, v=2]"})
        EXPECT_TRUE(allows_text(list, text)) << text;
    EXPECT_FALSE(allows_text(list, "[1, o=2, u=1]"));
}

TEST_F(TransitionNetworks, ListsOfThousandsOfMixedItemsAreRead) {
    auto item = std::make_shared<Config::Union>();
    item->elements = {Config::Regex{"[A-Z]"}, Config::JSONSchema{R"({"type":"boolean"})"},
                      Config::JSONSchema{R"({"const":[]})"}};
    auto list = std::make_shared<Config::TagsWithSeparator>();
    list->tags = {{"", item, ""}};
    list->separator = ", ";
    std::string text = "X";
    for (int i = 0; i < 3000; ++i) text += i % 3 == 0 ? ", []" : i % 3 == 1 ? ", Y" : ", true";
    EXPECT_TRUE(allows_text(list, text));
}

}  // namespace
}  // namespace pagewheel
