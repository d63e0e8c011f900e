#include "pagewheel/cache_eviction_config.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <optional>

#include "bindings.hpp"
#include "conversions.hpp"
#include "pagewheel/errors.hpp"
#include "pagewheel/eviction_policy.hpp"

namespace pagewheel::python {

namespace {

/// What a Python policy sees of a view; it ends with the call.
class View {
public:
    explicit View(const EvictionView& view) : m_view(&view) {}
    void end() { m_view = nullptr; }
    const EvictionView& get() const {
        if (!m_view) throw std::runtime_error("the view is valid during drop() only");
        return *m_view;
    }

private:
    const EvictionView* m_view;
};

/// Numbers of the view as properties.
template <auto... members, class Class>
void add_numbers(Class& bound) {
    (bound.def_property_readonly(name_of<members>().c_str(),
                                 [](const View& self) { return self.get().*members; }),
     ...);
}

/// An array of the view's, a value for each token.
template <auto array>
auto copied(const View& self) {
    const EvictionView& view = self.get();
    using T = std::decay_t<decltype(*(view.*array))>;
    return py::array_t<T>(py::ssize_t(view.num_tokens), view.*array);
}

constexpr const char* no_queries =
    "what is before rotation is there if observed() asks for queries";

/// What `read` writes of tokens [first, last).
template <auto read, auto width>
py::array_t<float> read_tokens(const View& self, size_t first, size_t last) {
    const EvictionView& view = self.get();
    if (first > last || last > view.num_tokens)
        throw py::value_error("tokens " + std::to_string(first) + " to " + std::to_string(last) +
                              ": allowed are tokens 0 to " + std::to_string(view.num_tokens));
    if (!(view.*read)) throw py::value_error(no_queries);
    py::array_t<float> rows({last - first, view.kv_heads, view.*width});
    (view.*read)(first, last, rows.mutable_data());
    return rows;
}

/// The view, if it has seen queries.
const EvictionView& with_queries(const View& self) {
    if (self.get().num_queries == 0)
        throw py::value_error(self.get().read_keys_before_rotation
                                  ? "num_queries is 0: none was observed since the last decision"
                                  : no_queries);
    return self.get();
}

py::array_t<float> mean_query(const View& self) {
    const EvictionView& view = with_queries(self);
    return py::array_t<float>({view.heads, view.head_size}, view.mean_query);
}

py::array_t<float> mean_amplitude(const View& self) {
    const EvictionView& view = with_queries(self);
    return py::array_t<float>({view.heads, view.rotary_dims / 2}, view.mean_amplitude);
}

py::array_t<double> inverse_frequencies(const View& self) {
    const EvictionView& view = self.get();
    if (!view.read_keys_before_rotation) throw py::value_error(no_queries);
    return py::array_t<double>(py::ssize_t(view.rotary_dims / 2), view.inverse_frequencies);
}

/// Calls the methods of a Python subclass, whatever thread steps.
class PythonPolicy : public EvictionPolicy, public py::trampoline_self_life_support {
public:
    ObservedQueries observed() const override {
        const Locked locked;
        const py::function method =
            py::get_override(static_cast<const EvictionPolicy*>(this), "observed");
        if (!method) return EvictionPolicy::observed();
        const py::object answer = call(method);
        if (!py::isinstance<ObservedQueries>(answer))
            throw py::type_error("observed() must return ObservedQueries, got " +
                                 std::string(py::repr(answer)));
        return answer.cast<ObservedQueries>();
    }
    void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) override {
        const Locked locked;
        retry_interrupted("drop()", [&] { return ask(view, count, dropped); });
    }

private:
    /// False, and nothing appended, if the answer was interrupted.
    bool ask(const EvictionView& view, size_t count, std::vector<size_t>& dropped) {
        try {
            const py::function method =
                py::get_override(static_cast<const EvictionPolicy*>(this), "drop");
            if (!method) throw std::runtime_error("the policy has no method drop(view, count)");
            const py::object view_object = py::cast(View(view));
            // However the call ends, its view is over.
            const auto end = [](View* view) { view->end(); };
            const std::unique_ptr<View, decltype(end)> ending(view_object.cast<View*>(), end);
            std::vector<size_t> answer;
            for (const auto& unit : py::iter(call(method, view_object, count)))
                answer.push_back(to_index(unit));
            dropped.insert(dropped.end(), answer.begin(), answer.end());
            return true;
        } catch (const py::error_already_set& error) {  // not to outlive the lock
            if (error.matches(PyExc_KeyboardInterrupt)) return false;
            throw std::runtime_error(error.what());
        }
    }

    static size_t to_index(const py::handle& unit) {
        try {
            return unit.cast<size_t>();
        } catch (const py::cast_error&) {
            throw std::runtime_error("drop() must return indices, got " +
                                     std::string(py::repr(unit)));
        }
    }
};

void bind_policy(py::module_& module) {
    py::class_<ObservedQueries> observed(
        module, "ObservedQueries",
        "Which attention a policy wants to see: queries before a decision.");
    observed
        .def(py::init([](size_t prompt, size_t decode, bool accumulate, bool queries) {
                 return ObservedQueries{prompt, decode, accumulate, queries};
             }),
             py::arg("prompt") = 0, py::arg("decode") = 0, py::arg("accumulate") = false,
             py::arg("queries") = false)
        .def_readwrite("prompt", &ObservedQueries::prompt, "Last queries of the prompt.")
        .def_readwrite("decode", &ObservedQueries::decode,
                       "Last queries before a decision, while generating.")
        .def_readwrite("accumulate", &ObservedQueries::accumulate,
                       "Scores are kept over decisions; else they start from zero after each.")
        .def_readwrite("queries", &ObservedQueries::queries,
                       "The means of these queries are wanted, too; `prompt` is at most 64 then. "
                       "Refused with OpenVINO's attention.");
    observed.attr("ALL") = ObservedQueries::all;

    py::class_<View> view(module, "EvictionView",
                          R"(One layer of one sequence's cache at the moment of a decision.

Tokens are in the order of their positions. Units [first_unit, last_unit) may go; unit u is tokens
[u * unit_size, (u + 1) * unit_size): a block or, with unit_size 1, a token. Arrays are copies,
which may be kept; the view itself is valid during the call only.)");
    using V = EvictionView;
    add_numbers<&V::layer, &V::num_tokens, &V::unit_size, &V::first_unit, &V::last_unit,
                &V::num_queries>(view);
    view.def_property_readonly(
            "is_prefilling", [](const View& self) { return self.get().is_prefilling; },
            "More of the prompt is to be read: nobody knows yet what it asks for.")
        .def_property_readonly(
            "scores", &copied<&EvictionView::scores>,
            "float32 [num_tokens]: attention received from the observed queries, over all heads.")
        .def_property_readonly("lifetimes", &copied<&EvictionView::lifetimes>,
                               "int32 [num_tokens]: observed queries that could see the token.")
        .def_property_readonly(
            "positions", &copied<&EvictionView::positions>,
            "int64 [num_tokens]: the tokens' numbers in the sequence, ascending.")
        .def_property_readonly("read_at", &copied<&EvictionView::read_at>,
                               "int64 [num_tokens]: the positions that attention sees the keys at.")
        .def_property_readonly(
            "rotations", &copied<&EvictionView::rotations>,
            "int32 [num_tokens]: by how many positions it rotates each key back for that.")
        .def("keys", &read_tokens<&V::read_keys, &V::head_size>, py::arg("first"), py::arg("last"),
             "float32 [last - first, kv heads, head size]: keys of tokens [first, last), as "
             "cached.")
        .def("values", &read_tokens<&V::read_values, &V::value_size>, py::arg("first"),
             py::arg("last"),
             "float32 [last - first, kv heads, value size]: values of tokens [first, last).")
        .def("keys_before_rotation", &read_tokens<&V::read_keys_before_rotation, &V::head_size>,
             py::arg("first"), py::arg("last"),
             "As keys(), before their rotation: with d rotary dimensions, pairs that rotate are "
             "(i, i + d / 2). This and what follows is there if observed() asks for queries.")
        .def_property_readonly("mean_query", &mean_query,
                               "float32 [heads, head size]: of the observed queries, before their "
                               "rotation.")
        .def_property_readonly("mean_amplitude", &mean_amplitude,
                               "float32 [heads, d / 2]: of each pair that rotates.")
        .def_property_readonly("inverse_frequencies", &inverse_frequencies,
                               "float64 [d / 2]: radians by which each pair rotates at each "
                               "position.");

    py::class_<EvictionPolicy, PythonPolicy, py::smart_holder>(
        module, "EvictionPolicy",
        R"(What chooses the tokens that leave a sequence's cache. Subclass it and give an instance as
CacheEvictionConfig's policy: observed() says which attention is wanted (none by default), and
drop(view, count) returns `count` distinct units of [view.first_unit, view.last_unit). An exception
or a wrong answer ends the request that is concerned, and no other; where Ctrl-C interrupts it, it is
asked once more. It runs inside a step: what needs another one (step(), generate(), the prefix cache, to wait
for a handle) raises RuntimeError there.)")
        .def(py::init<>())
        .def("observed", &EvictionPolicy::observed)
        .def(
            "drop",
            [](EvictionPolicy& policy, const View& view, size_t count) {
                std::vector<size_t> dropped;
                policy.drop(view.get(), count, dropped);
                return dropped;
            },
            py::arg("view"), py::arg("count").noconvert());
    module.def("make_policy", &make_policy, py::arg("config"),
               "The policy that a CacheEvictionConfig asks for, to call it from one of your own.");
}

py::object policy_of(const CacheEvictionConfig& config) {
    return config.custom_policy ? py::cast(config.custom_policy) : py::cast(config.policy);
}

void set_policy(CacheEvictionConfig& config, const py::object& policy) {
    if (py::isinstance<py::str>(policy)) {
        config.policy = policy.cast<std::string>();
        config.custom_policy = nullptr;
    } else {
        config.custom_policy = policy.cast<std::shared_ptr<EvictionPolicy>>();
        config.policy.clear();
    }
}

EvictionGranularity granularity_of(const py::object& value) {
    if (!py::isinstance<py::str>(value)) return value.cast<EvictionGranularity>();
    const auto name = value.cast<std::string>();
    if (name == "block") return EvictionGranularity::BLOCK;
    if (name == "token") return EvictionGranularity::TOKEN;
    if (name == "auto") return EvictionGranularity::AUTO;
    throw InvalidArgument("granularity is '" + name + "'; allowed: auto, block, token",
                          ErrorCode::invalid_parameter, "granularity");
}

void bind_parts(py::module_& module) {
    using M = AggregationMode;
    bind_enum<M::SUM, M::NORM_SUM, M::ADAPTIVE_RKV>(module, "AggregationMode");
    using G = EvictionGranularity;
    bind_enum<G::BLOCK, G::TOKEN, G::AUTO>(module, "EvictionGranularity");
    bind_enum<ScorePooling::ROOT_MEAN, ScorePooling::MAX, ScorePooling::WITH_OWN>(module,
                                                                                  "ScorePooling");
    using A = KVCrushAnchorPointMode;
    bind_enum<A::RANDOM, A::ZEROS, A::ONES, A::MEAN, A::ALTERNATING>(module,
                                                                     "KVCrushAnchorPointMode");
    using K = KVCrushConfig;
    py::class_<K> crush(module, "KVCrushConfig",
                        "KVCrush: of the blocks that scores would evict, `budget` are kept as "
                        "representatives of the others (arXiv:2503.00022).");
    crush.def(py::init<>())
        .def(py::init<size_t, A, size_t>(), py::arg("budget"),
             py::arg_v("anchor_point_mode", A::RANDOM, "KVCrushAnchorPointMode.RANDOM"),
             py::arg("rng_seed") = 0);
    read_write<&K::budget, &K::anchor_point_mode, &K::rng_seed>(crush);
    add_to_string(crush);
    using R = AdaptiveRKVConfig;
    py::class_<R> rkv(
        module, "AdaptiveRKVConfig",
        "What carries attention_mass of the last window_size queries' attention stays; of the rest "
        "the keys least like the others (after arXiv:2505.24133).");
    rkv.def(py::init<double, size_t>(), py::arg("attention_mass") = 0.9,
            py::arg("window_size") = 8);
    read_write<&R::attention_mass, &R::window_size>(rkv);
    add_to_string(rkv);
}

constexpr const char* eviction_config_intro =
    R"(How a sequence's KV cache is kept within a budget. Sizes are tokens.

start_size: tokens at the beginning (attention sinks) that stay.
recent_size: tokens at the end that stay.
max_cache_size: the budget. As soon as it is reached, tokens between the two areas go.
aggregation_mode: how scores of several steps become one; ADAPTIVE_RKV chooses that policy.
apply_rotation: positions stay below position_limit: before one reaches it, what is left rotates down
  by what was evicted before it, and new tokens get the position processed - evicted.
position_limit: at most the model's context; 0: the context, up to 32,768 or twice the budget. 1: positions
  close up with each decision, as they do where the context is not known.
snapkv_window_size: last queries of the prompt whose attention is counted; 0: all.
kvcrush_config, adaptive_rkv_config: of those policies.
policy: "" (by aggregation_mode and kvcrush_config), an EvictionPolicy of your own, or one of those below.
granularity: "block" or "token": what goes at a time. Tokens that stay are packed densely. "auto":
  "token" for policies that go by attention, else "block".
score_pooling: a score is pooled over that many tokens around it; odd. 1: it stays as it is; 0: 17
  with granularity "token", else 1.
score_pooling_mode: WITH_OWN, a token's own and twice ROOT_MEAN; ROOT_MEAN, the square of the mean root; MAX.
evict_during_prefill: prompts are evicted while they are computed, not only after.
decision_delay: a prompt is evicted that many tokens after its end, whose queries say best what is
  needed. It is held whole until then, if blocks are free.

Policies:
)";

/// A line for each policy below the rest.
std::string eviction_config_doc() {
    std::string text = eviction_config_intro;
    for (const EvictionPolicyKind& each : eviction_policies()) {
        const std::string parameters = each.parameters;
        text += "  " + std::string(each.name) + ": " + each.help +
                (parameters.empty() ? "" : "; reads " + parameters) + "\n";
    }
    return text;
}

void bind_policy_kinds(py::module_& module) {
    using K = EvictionPolicyKind;
    py::class_<K> kind(module, "EvictionPolicyKind",
                       R"(A policy that CacheEvictionConfig knows by its name.

parameters: those of CacheEvictionConfig that only some policies read. by_attention: single tokens go
with granularity "auto", else whole blocks.)");
    read_only<&K::name, &K::help, &K::parameters, &K::by_attention>(kind);
    module.def("eviction_policies", &eviction_policies, "All policies that have a name.");
}

}  // namespace

void bind_cache_eviction_config(py::module_& module) {
    using C = CacheEvictionConfig;
    bind_parts(module);
    bind_policy_kinds(module);
    py::class_<C> config(module, "CacheEvictionConfig", eviction_config_doc().c_str());
    bind_policy(module);
    read_write<&C::aggregation_mode, &C::apply_rotation, &C::position_limit, &C::snapkv_window_size,
               &C::kvcrush_config, &C::adaptive_rkv_config, &C::score_pooling,
               &C::score_pooling_mode, &C::evict_during_prefill, &C::decision_delay>(config);
    config
        .def(py::init([](size_t start_size, size_t recent_size, size_t max_cache_size,
                         AggregationMode aggregation_mode, bool apply_rotation,
                         size_t snapkv_window_size, const std::optional<KVCrushConfig>& kvcrush,
                         const py::object& policy, const py::object& granularity,
                         size_t score_pooling, ScorePooling score_pooling_mode,
                         bool evict_during_prefill, size_t decision_delay, size_t position_limit,
                         const std::optional<AdaptiveRKVConfig>& adaptive_rkv) {
                 C config(start_size, recent_size, max_cache_size, aggregation_mode, apply_rotation,
                          snapkv_window_size, kvcrush.value_or(KVCrushConfig()));
                 set_policy(config, policy);
                 config.granularity = granularity_of(granularity);
                 config.score_pooling = score_pooling;
                 config.score_pooling_mode = score_pooling_mode;
                 config.evict_during_prefill = evict_during_prefill;
                 config.decision_delay = decision_delay;
                 config.position_limit = position_limit;
                 config.adaptive_rkv_config = adaptive_rkv.value_or(AdaptiveRKVConfig());
                 config.validate();
                 return config;
             }),
             py::arg("start_size"), py::arg("recent_size"), py::arg("max_cache_size"),
             py::arg_v("aggregation_mode", AggregationMode::NORM_SUM, "AggregationMode.NORM_SUM"),
             py::arg("apply_rotation") = false, py::arg("snapkv_window_size") = 8,
             py::arg("kvcrush_config") = py::none(), py::kw_only(), py::arg("policy") = "",
             py::arg("granularity") = "auto", py::arg("score_pooling") = 0,
             py::arg_v("score_pooling_mode", ScorePooling::WITH_OWN, "ScorePooling.WITH_OWN"),
             py::arg("evict_during_prefill") = false, py::arg("decision_delay") = 0,
             py::arg("position_limit") = 0, py::arg("adaptive_rkv_config") = py::none())
        .def_property("policy", &policy_of, &set_policy)
        .def_property(
            "granularity", [](const C& c) { return c.granularity; },
            [](C& c, const py::object& value) { c.granularity = granularity_of(value); })
        .def("validate", py::overload_cast<>(&C::validate, py::const_),
             "Raises ValueError if a parameter is out of range.");
    methods<&C::get_start_size, &C::get_recent_size, &C::get_max_cache_size,
            &C::get_evictable_size>(config);
    add_to_string(config);
}

}  // namespace pagewheel::python
