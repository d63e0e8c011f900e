#include "pagewheel/cache_view.hpp"

#include "bindings.hpp"
#include "fields.hpp"

namespace pagewheel::python {
namespace {

template <class T>
py::array_t<T> copy_of(const std::vector<T>& values) {
    return py::array_t<T>(py::ssize_t(values.size()), values.data());
}

template <class T>
py::array_t<T> by_layer(const KeptTokens& self, const std::vector<T>& values) {
    return py::array_t<T>({self.num_layers, self.num_bins}, values.data());
}

py::array_t<uint8_t> states_of(const CacheView& self) {
    const auto* states = reinterpret_cast<const uint8_t*>(self.blocks.data());
    return py::array_t<uint8_t>(py::ssize_t(self.blocks.size()), states);
}

}  // namespace

void bind_cache_view(py::module_& module) {
    bind_enum<BlockState>(
        module, "BlockState",
        "USED is held by one sequence, SHARED by several, CACHED by none and kept "
        "for a prefix that may come again; PINNED is the same and stays.",
        "FREE", BlockState::FREE, "USED", BlockState::USED, "SHARED", BlockState::SHARED, "CACHED",
        BlockState::CACHED, "PINNED", BlockState::PINNED);
    bind_enum<SequenceStatus>(module, "SequenceStatus",
                             "WAITING has no blocks yet; PREEMPTED had some and is to have some "
                             "again.",
                             "WAITING", SequenceStatus::WAITING, "PREFILLING",
                             SequenceStatus::PREFILLING, "DECODING", SequenceStatus::DECODING,
                             "PREEMPTED", SequenceStatus::PREEMPTED);

    using S = SequenceView;
    py::class_<S> sequence(module, "SequenceView", R"(One sequence of a request, in a CacheView.

request_id is None for requests of generate(). num_tokens counts prompt and answer, num_computed
those of them whose keys are in the cache or were evicted. blocks (int32) are in the order of its
tokens; layers that evict reorder them.)");
    read_only(sequence, "request_id", &S::request_id, "index", &S::index, "cache_salt",
              &S::cache_salt, "state", &S::state, "priority", &S::priority, "num_prompt_tokens",
              &S::num_prompt_tokens, "num_tokens", &S::num_tokens, "num_computed", &S::num_computed,
              "num_evicted", &S::num_evicted, "num_prefix_hits", &S::num_prefix_hits);
    sequence.def_property_readonly("blocks", [](const S& self) { return copy_of(self.blocks); });

    using K = KeptTokens;
    py::class_<K> kept(
        module, "KeptTokens",
        R"(What eviction has left of one sequence of a CacheView, whose place in `sequences` is `sequence`.

kept and rotated are [num_layers, num_bins]: of each range of tokens_per_bin tokens, how many the
layer still holds (uint32), and by how many positions their keys are rotated at read, on average
(int32; an attention that rotates keys in the cache has none).)");
    read_only(kept, "sequence", &K::sequence, "num_layers", &K::num_layers, "num_bins",
              &K::num_bins, "tokens_per_bin", &K::tokens_per_bin);
    kept.def_property_readonly("kept", [](const K& self) { return by_layer(self, self.kept); });
    kept.def_property_readonly("rotated",
                               [](const K& self) { return by_layer(self, self.rotated); });

    using V = CacheView;
    py::class_<V> view(module, "CacheView", R"(What the KV cache holds, and for whom, at one moment.

block_states (uint8) are values of BlockState. num_sequences counts all; sequences has at most as
many as were asked for, those with blocks first. kept is None where nothing was evicted.)");
    read_only(view, "num_steps", &V::num_steps, "block_size", &V::block_size, "num_sequences",
              &V::num_sequences, "sequences", &V::sequences, "kept", &V::kept);
    view.def_property_readonly("block_states", &states_of);
}

}  // namespace pagewheel::python
