// Passes over a decoder's graph, each in the file of its name. compile_model.cpp runs them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernels/activation_choice.hpp"
#include "model/cache_geometry.hpp"
#include "openvino/core/model.hpp"
#include "ops/native_region.hpp"

namespace pagewheel {

// ---- paged_attention.cpp: what every decoder gets, attention over a paged cache, and logits only
// for the rows that are sampled

/// Throws InvalidArgument, with the name, for an input that a text decoder lacks or that
/// nobody would fill: a model with inputs_embeds, or with keys and values as inputs. A head that
/// drafts must have hidden_states, too.
void check_decoder_inputs(const ov::Model& model, bool is_head = false);

/// What OpenVINO's attention is to give and take besides, for caches that are evicted from.
struct PagingOptions {
    bool per_layer_tables = false;  ///< inputs block_indices.N in place of block_indices
    /// Outputs scores.N: attention received by each key of the cache, of the last queries of each
    /// sequence, as many as the input score_aggregation_window says.
    bool scores = false;
};

/// Turns a stateful decoder (ScaledDotProductAttention over ReadValue/Assign states, as
/// optimum-intel and pagewheel.convert write it) into one with PagedAttention, cache inputs
/// key_cache.N and value_cache.N, and ragged tokens: input_ids and position_ids [tokens]. A model
/// that has cache inputs already is left alone. Throws InvalidArgument if the model has no
/// such form, or has cache inputs and not what the options ask for.
void apply_paged_attention(const std::shared_ptr<ov::Model>& model,
                           const PagingOptions& options = {});

/// Adds an input `sampled_tokens_indices` (i64 [rows], ascending; ports::sampled_tokens_indices)
/// and takes these rows before the vocabulary projection: output `logits` becomes f32 [rows,
/// vocabulary]. For an ov::Model after apply_paged_attention(). Throws InvalidArgument if there is
/// no output `logits` of rank 3.
void gather_logits(const std::shared_ptr<ov::Model>& model);

// ---- hidden_states.cpp: what heads that draft read of a model, and what they give. Each adds an
// output last_hidden_state, f32 [rows, hidden], after gather_logits(), and throws InvalidArgument
// where there are no such hidden states.

/// What the vocabulary projection reads of all tokens.
void give_hidden_states(const std::shared_ptr<ov::Model>& model);

/// The same of a head's rows that gather_logits() takes; what its last norm reads, if `before_norm`
/// says so. The input hidden_states becomes f32 [tokens, hidden].
void give_head_states(const std::shared_ptr<ov::Model>& head, bool before_norm);

/// For a head of EAGLE-3 (Li et al., arXiv 2503.01840), of all tokens: what `layers` read, joined
/// and multiplied with the head's fc. Without `layers` they are 2, num_layers / 2 and
/// num_layers - 3, as the authors have them; num_layers means what the last one gives.
void give_eagle3_states(const std::shared_ptr<ov::Model>& model, size_t num_layers,
                        const ov::Model& head, std::vector<size_t> layers);

/// The head, as it was read, gets the model's embeddings and reads hidden states behind fc. Gives
/// the model's tokens that its logits are of; none where they are of all.
std::vector<int64_t> complete_eagle3_head(ov::Model& head, const ov::Model& model);

// ---- native_attention.cpp: pagewheel's own attention in place of OpenVINO's

struct NativeAttentionOptions {
    kernels::CacheFormat format = kernels::CacheFormat::u8;
    size_t block_size = 32;
    /// The rotation of each layer; the last serves all further ones. Empty: no layer is rotated.
    std::vector<LayerRotary> rotary;
    /// Leave the model as it is if some node cannot be served.
    bool all_or_none = false;
    /// Sliding window of each layer by the model's config, 0 for none; empty where it does not say.
    std::vector<size_t> sliding_windows;
    /// The cap of every layer's logits; 0 for none. OpenVINO's node has no such input.
    float soft_cap = 0;
    bool batch_invariant = false;  ///< kernels::AttentionConfig::batch_invariant
};

struct NativeAttentionReport {
    size_t num_replaced = 0;
    std::vector<CacheLayer> layers;  ///< in the order of their caches
    /// Why nodes were left to OpenVINO, one sentence each.
    std::vector<std::string> left;
};

/// Replaces each PagedAttentionExtension of a model after apply_paged_attention() by
/// pagewheel::PagedAttention over u8 cache inputs of the same names and one input batch_tables for
/// all layers (kernels::BatchTablesLayout), where the layer with key_cache.N is number N. A layer
/// that reads another's cache has that one's tables and gives no scores. PagedCausalConv1D becomes
/// pagewheel::ShortConvolution over states of the same names. A node it cannot serve stays; inputs
/// of OpenVINO's nodes that nothing reads any more go.
///
/// OpenVINO's pass finds sliding windows by matching masks and can miss them: where the config's
/// window differs from the node's, the config's is used.
NativeAttentionReport use_native_attention(const std::shared_ptr<ov::Model>& model,
                                           const NativeAttentionOptions& options);

// ---- fast_prefill.cpp: computes what leads to logits, and to nothing else, for the rows whose
// logits are asked for

struct FastPrefillOptions {
    /// Attention of more rows than those whose logits are wanted may be observed: the model gets an
    /// input logits_indices, and its sampled_tokens_indices count logits indices.
    bool observes_attention = false;
};

/// What a prompt's tokens are spared.
struct FastPrefillReport {
    /// Layers whose attention's output is read for logits indices alone.
    size_t num_layers = 0;
    /// Those layers whose attention has queries for logits indices alone, too.
    size_t num_attentions = 0;
    /// Those attentions that are pagewheel's, which read the tables of logits indices.
    size_t num_native_attentions = 0;
    /// The share, 0 to 1, of the multiply-adds with constant matrices (all experts', not the
    /// vocabulary's) that a token nobody asks for is spared.
    double work_skipped = 0;
    /// OpenVINO did not take the graph with fewer rows: it is as it was.
    bool failed = false;
    /// What keeps more from being left out, one sentence each; empty where only keys and values do.
    std::vector<std::string> why;
};

/// Moves the gathering of gather_logits() up to where it finds what the cache depends on.
/// Behind the last layer that writes keys and values lies nothing but what logits need: in a model
/// whose last layers read the caches of earlier ones these layers, and in every model all of the
/// last writing layer but its keys and values. All of that then has logits indices: of each
/// sequence the last tokens of its chunk, as many as are asked for, none for a chunk in the middle
/// of a prompt.
///
/// It follows what is computed token by token (TokenLayouts), across attention if that can have
/// other queries than keys: pagewheel's can. OpenVINO's writes and attends in one go, so that it
/// can only where it writes nothing. What is not known to be computed token by token stays as it
/// is, with all that follows from it or leads to it.
///
/// After gather_logits() and use_native_attention(), before all that merges operations. Inputs that
/// it adds: see ports::logits_*. Lengths and assignments to slices are written out in any case
/// (fold_lengths(), replace_slice_assigns()).
///
/// Sources: You Only Cache Once (arXiv 2405.05254) skips the second half of a decoder-decoder at
/// prefill; the suffix and the last layer are the same thing, seen from the logits.
FastPrefillReport skip_unread_rows(std::shared_ptr<ov::Model>& model,
                                   const FastPrefillOptions& options);

// ---- state_operations.cpp

/// SDPAToPagedAttention takes a Loop over tokens for a gated delta rule where each head has one
/// decay. In a Loop that has one for each channel of keys, as pagewheel's converter writes it, this
/// pass replaces the decays by their sum over the channels. The sum is never computed, because
/// GatedDeltaRule then reads the decays themselves. It runs before SDPAToPagedAttention.
void sum_channel_decays(ov::Model& model);

// ---- fuse_states.cpp: what stands around operations with states goes into them

/// The SiLU after a ShortConvolution becomes its own. A GatedDeltaRule reads its queries, keys and
/// values out of the rows that a split parts, computes its decays and betas itself, and its gated
/// norm, gamma * (y / rms(y)) * silu(z). Before skip_unread_rows(), to which heads that are written
/// as rows are not known to be tokens. Returns how many nodes do something more.
size_t fuse_states(const std::shared_ptr<ov::Model>& model);

// ---- selective_ssm.cpp

/// A number for each channel that is added to what a ShortConvolution gives becomes its bias. To be
/// done before fuse_states(). Returns how many.
size_t fuse_convolution_biases(const std::shared_ptr<ov::Model>& model);

/// Takes into each SelectiveSsm what stands around it: the slices that it reads, its steps'
/// softplus, the skip connection and the gate. After skip_unread_rows(). Returns how many there
/// are.
size_t fuse_selective_ssms(const std::shared_ptr<ov::Model>& model);

// ---- quantized_linear.cpp: pagewheel's own linear layers in place of OpenVINO's

struct QuantizedLinearReport {
    size_t num_matrices = 0;           ///< MatMuls that were replaced
    size_t num_nodes = 0;              ///< by so many nodes
    size_t num_shared_embeddings = 0;  ///< look-ups that read a packed matrix
    /// Why MatMuls with constant weights were left to OpenVINO, one sentence each.
    std::vector<std::string> left;
};

/// Replaces MatMuls of compressed weights (graph/compressed_weights.hpp) by
/// pagewheel::QuantizedLinear, one for all that share an input. Weights are packed matrix by matrix
/// and the constants let go of, unless something else reads them. An embedding of the same matrix
/// (the head's, in models that tie them) becomes a pagewheel::QuantizedEmbedding that reads the
/// packed one, where that gives the same numbers: where zero points are integers.
QuantizedLinearReport use_quantized_linear(
    const std::shared_ptr<ov::Model>& model,
    kernels::ActivationPrecision activations = kernels::ActivationPrecision::automatic);

// ---- routed_experts.cpp: pagewheel's own routed experts in place of OpenVINO's

/// Replaces layers of routed experts by pagewheel::RoutedExperts, and returns how many. What is
/// known is the form that optimum-intel and pagewheel's converter write: each expert computes each
/// row, and the router's weights, 0 for those that were not chosen, are multiplied with that:
///
///     Tile(x) -> MatMul of stacks [experts, n, k] (graph/compressed_weights.hpp), with or without
///     biases -> Multiply by ScatterElementsUpdate(0, chosen, weights) -> ReduceSum
///
/// Gate and up may be one stack, their rows in halves or alternating. Of the activations SwiGLU,
/// the clamped one of gpt-oss and the GELU by the hyperbolic tangent are known. A router whose
/// scores are a softmax, a sigmoid or the logits, with or without a correction and groups of
/// experts, becomes part of the node, whatever it reads; others stay, and the node reads what they
/// choose.
size_t use_routed_experts(const std::shared_ptr<ov::Model>& model,
                          kernels::ActivationPrecision activations);

// ---- fuse_linear.cpp: what stands around pagewheel's linear layers goes into them: fewer nodes,
// and data that is worked on while it is in registers. For models after use_quantized_linear()

/// Root mean square norms that feed nothing but one QuantizedLinear become its own. Returns how
/// many.
size_t fuse_norms(const std::shared_ptr<ov::Model>& model);

/// QuantizedLinear of gate and up, silu(gate) * up, and QuantizedLinear of down become one
/// GatedMlp, with the norm of the first. Returns how many.
size_t fuse_gated_mlps(const std::shared_ptr<ov::Model>& model);

/// Where each head that a QuantizedLinear gives is normed (root mean square), or all or the first
/// values of it are rotated by rotary angles, halves paired, or both in this order, the node does
/// it itself. Returns how many nodes do.
size_t fuse_heads(const std::shared_ptr<ov::Model>& model);

/// The gate of attention, x * sigmoid(gate), before a QuantizedLinear that alone reads it becomes
/// the node's own. Returns how many.
size_t fuse_gates(const std::shared_ptr<ov::Model>& model);

/// The sum of a residual stream and the only output of a QuantizedLinear or a GatedMlp becomes the
/// node's own. Returns how many.
size_t fuse_residuals(const std::shared_ptr<ov::Model>& model);

// ---- small_passes.cpp: single nodes are replaced by cheaper ones

/// Lets all readers of equal constants of at most 16 f32, i32 or i64 values read the first of them;
/// returns how many became unused. Converters write axes, shapes and factors anew at each use: a
/// third of a decoder's nodes, and every pass that compiles the model visits all nodes many times.
size_t share_constants(const std::shared_ptr<ov::Model>& model);

/// A f32 MatMul that adds up one product each, [..., m, 1] by [..., 1, n], becomes a Multiply,
/// which gives the same: rotary angles are positions times frequencies, and OpenVINO's MatMul
/// takes 30 to 40 microseconds for them. Returns how many.
size_t multiply_outer_products(const std::shared_ptr<ov::Model>& model);

/// A Gather of rows by the model's logits_indices or sampled_tokens_indices, which operations of
/// pagewheel's read, becomes GatherRows, so that it does not part what a region could hold. Returns
/// how many.
size_t use_gather_rows(const std::shared_ptr<ov::Model>& model);

/// Lengths that have nothing to do with tokens become constants, and what is computed of them: an
/// exporter writes heads and channels as what it read off another tensor. A Broadcast of rows to
/// the shape that they have goes. For a model after apply_paged_attention().
void fold_lengths(ov::Model& model);

/// Assignments to slices (find_slice_assign()), where `into` is known to have the shape of `shaped`
/// (TokenLayouts), become a Concat of what stays and what is new, without indices of elements,
/// which keeps tokens apart and costs less.
void replace_slice_assigns(ov::Model& model);

// ---- native_regions.cpp: pagewheel's operations that hang together become one node, if no cycle
// comes of it

struct GraphEdge {
    size_t from, to;
};

/// Joins nodes into groups along `joins`, which are edges of the acyclic graph of nodes [0, count)
/// and `edges` too. If each group were one node, the graph would still be acyclic; so no path leads
/// out of a group and back in. No join that is left could be made as well. Returns a group's number
/// for each node: that of one of its nodes.
std::vector<size_t> find_convex_groups(size_t count, const std::vector<GraphEdge>& edges,
                                       const std::vector<GraphEdge>& joins);

struct NativeRegions {
    std::vector<std::shared_ptr<const RegionPlan>> plans;
    /// Caches that are no inputs of the model any more, in the order of its cache_directory.
    std::vector<CacheInput> caches;
};

/// Puts a NativeRegion in the place of each set of two or more NativeOps that are connected by
/// rows and that one node can stand for without the graph becoming cyclic; sets are as large as
/// they can be. What only looks at rows in other shapes (Reshape, Squeeze, Unsqueeze, a Transpose
/// that moves nothing) between them goes too. An operation whose output has more than one dynamic
/// dimension stays as it is.
///
/// Cache inputs, u8 [blocks, ...], that nothing but regions reads are taken out of the model: one
/// input cache_directory has their addresses (see make_cache_directory).
///
/// After all other passes of pagewheel's, which do not look into regions.
NativeRegions form_native_regions(const std::shared_ptr<ov::Model>& model);

}  // namespace pagewheel
