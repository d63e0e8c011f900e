#include "pagewheel/json_container.hpp"

#include <gtest/gtest.h>

#include "pagewheel/chat_history.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

using Json = JsonContainer;

TEST(JsonContainer, KeysKeepTheOrderTheyWereGivenIn) {
    const Json json{{"type", "function"}, {"a", 1}, {"list", std::vector<int64_t>{2, 3}}};
    EXPECT_EQ(json.to_json_string(), R"({"type":"function","a":1,"list":[2,3]})");
    EXPECT_EQ(Json::from_json_string(R"({"b":1,"a":2})").to_json_string(), R"({"b":1,"a":2})");
    EXPECT_EQ(Json(ov::AnyMap{{"b", true}, {"a", 0.5}}).to_json_string(), R"({"a":0.5,"b":true})");
}

TEST(JsonContainer, HoldsWhatJsonHas) {
    EXPECT_TRUE(Json(nullptr).is_null());
    EXPECT_TRUE(Json(true).get_bool());
    EXPECT_EQ(Json(-7).get_int(), -7);
    EXPECT_EQ(Json(0.5f).get_double(), 0.5);
    EXPECT_EQ(Json("text").get_string(), "text");
    EXPECT_TRUE(Json().is_object() && Json().empty());
    EXPECT_EQ(Json::array().type_name(), "array");
    const std::vector<ov::Any> mixed{std::string("a"), 1, Json::object()};
    EXPECT_EQ(Json({{"m", mixed}})["m"].to_json_string(), R"(["a",1,{}])");
    EXPECT_EQ(Json(1).as_string(), std::nullopt);
    EXPECT_EQ(Json(1).as_double(), 1.0);
}

TEST(JsonContainer, AViewChangesWhatItViewsAndACopyDoesNot) {
    Json json{{"a", Json{{"b", 1}}}};
    json["a"]["b"] = 2;
    json["a"]["new"] = "c";
    Json copy = json["a"].copy();
    copy["b"] = 3;
    Json view = json["a"].share();
    view["b"] = 4;
    EXPECT_EQ(json.to_json_string(), R"({"a":{"b":4,"new":"c"}})");
    EXPECT_EQ(copy["b"], 3);
    json["a"] = json["a"]["b"];  // a part of what it replaces
    EXPECT_EQ(json, Json({{"a", 4}}));
}

TEST(JsonContainer, GrowsAndShrinks) {
    Json json;
    json["list"] = nullptr;
    json["list"].push_back(1).push_back("b");
    EXPECT_EQ(json["list"].size(), 2u);
    json["list"].erase(size_t(0));
    EXPECT_EQ(json["list"][0], "b");
    json.concatenate(Json{{"a", 1}, {"list", 0}});
    EXPECT_EQ(json.to_json_string(), R"({"list":0,"a":1})");
    json.erase("list");
    EXPECT_FALSE(json.contains("list"));
    json.clear();
    EXPECT_TRUE(json.empty());
    EXPECT_EQ(json.to_empty_array().to_json_string(), "[]");
}

TEST(JsonContainer, WhatIsNotThereIsRefused) {
    Json json{{"a", 1}};
    EXPECT_THROW(json["b"].get_int(), InvalidArgument);
    EXPECT_THROW(json["b"]["c"] = 1, InvalidArgument);
    EXPECT_THROW(json["a"]["c"] = 1, InvalidArgument);
    EXPECT_THROW(json["a"][0], InvalidArgument);
    EXPECT_THROW(json["a"].get_string(), InvalidArgument);
    EXPECT_THROW(json["a"].push_back(1), InvalidArgument);
    EXPECT_THROW(json.erase("b"), InvalidArgument);
    EXPECT_THROW(json.concatenate(Json::array()), InvalidArgument);
    EXPECT_THROW(Json::from_json_string("{"), InvalidArgument);
    EXPECT_THROW(Json("\xFF").to_json_string(), InvalidArgument);
    EXPECT_THROW(Json({{"a", std::set<float>{}}}), InvalidArgument);
    EXPECT_EQ(json.to_json_string(), R"({"a":1})");
}

TEST(ChatHistoryMessages, AreJsonValuesThatCanBeChanged) {
    ChatHistory history{{{"role", "system"}, {"content", "Be brief."}}};
    history.push_back({{"role", "user"}, {"content", "Hello"}});
    history.push_back(history[0]);
    history.last()["content"] = "Be long.";
    EXPECT_EQ(history.messages_json(),
              R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"},)"
              R"({"role":"system","content":"Be long."}])");
    EXPECT_EQ(history.first()["role"], "system");
    const ChatHistory copy = history;
    history[0]["content"] = "";
    EXPECT_EQ(copy[0]["content"], "Be brief.");
    history.pop_back();
    EXPECT_EQ(history.get_messages().size(), 2u);
}

TEST(ChatHistoryMessages, WhatIsNoneIsRefusedAndChangesNothing) {
    ChatHistory history;
    EXPECT_THROW(history.push_back(JsonContainer("text")), InvalidArgument);
    EXPECT_THROW(ChatHistory(JsonContainer::object()), InvalidArgument);
    EXPECT_THROW(history.last(), OutOfRange);
    EXPECT_THROW(history.set_tools(JsonContainer::object()), InvalidArgument);
    EXPECT_THROW(history.set_extra_context(JsonContainer::array()), InvalidArgument);
    EXPECT_TRUE(history.empty());
}

}  // namespace
}  // namespace pagewheel
