// Operations of pagewheel's that hang together, as one OpenVINO operation on the CPU.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/line_buffer.hpp"
#include "openvino/runtime/tensor.hpp"
#include "ops/native_op.hpp"

namespace pagewheel {

/// A cache that was an input of the model: blocks in memory of the caller's.
struct CacheInput {
    std::string name;
    ov::element::Type type;
    ov::Shape block_shape;  ///< without the first dimension, the number of blocks
};

constexpr size_t cache_entry_bytes = 16;

/// One input in place of many: u8 [caches, 16], of each cache its address and its number of blocks
/// in 8 bytes each. The caches must outlive every inference.
///
/// Each input of a node of ours costs the plugin some 5 microseconds per inference, and a model has
/// two caches per layer.
ov::Tensor make_cache_directory(const std::vector<ov::Tensor>& caches);

/// The tensors that a directory names. They are made once for as long as it stays the same.
class CacheDirectory {
public:
    /// Throws InvalidArgument if the directory is not of so many caches, or names none where
    /// one should be.
    const std::vector<ov::Tensor>& read(const std::vector<CacheInput>& caches,
                                        const ov::Tensor& directory);

private:
    std::vector<uint8_t> m_bytes;  // that m_tensors were made of
    std::vector<ov::Tensor> m_tensors;
};

/// Adds up the time of each of a region's steps while it is switched on; off, it costs a look.
class RegionProfile {
public:
    using Clock = std::chrono::steady_clock;

    explicit RegionProfile(size_t num_steps) : m_times(num_steps) {}

    void switch_on() { m_on.store(true, std::memory_order_relaxed); }
    bool is_on() const { return m_on.load(std::memory_order_relaxed); }

    void add(size_t step, Clock::duration time) {
        const std::lock_guard lock(m_mutex);
        m_times[step] += time;
    }
    void end_call() {
        const std::lock_guard lock(m_mutex);
        ++m_calls;
    }

    /// Mean of all calls so far, by step; empty if there was none.
    std::vector<Clock::duration> means() const {
        const std::lock_guard lock(m_mutex);
        if (m_calls == 0) return {};
        std::vector<Clock::duration> means;
        for (const Clock::duration time : m_times) means.push_back(time / m_calls);
        return means;
    }

private:
    std::atomic<bool> m_on{false};
    mutable std::mutex m_mutex;
    std::vector<Clock::duration> m_times;
    long m_calls = 0;
};

/// What a call of a region has for itself. It grows to the largest call's and is kept, so that
/// steps like earlier ones allocate nothing.
struct RegionScratch {
    struct Value {
        float* values;  ///< of an input: never written
        size_t count;   ///< rows
    };
    kernels::LineBuffer<float> memory;  ///< of the slots
    std::vector<Value> values;          ///< of the region
    std::vector<size_t> slots;          ///< where each begins, in floats
    CacheDirectory caches;
    NativeInputs inputs;  ///< of one step
    std::vector<float*> outputs;
    ov::Shape shape;
    std::unique_ptr<RegionScratch> next;  ///< of those that are free
};

/// The scratches of a plan, as many as there were calls at once. They are the plan's and not the
/// threads', so that a model that goes takes its memory with it, and not the node's, because the
/// plugin may run one node for several streams.
class RegionScratchPool {
public:
    struct GiveBack {
        RegionScratchPool* pool;
        void operator()(RegionScratch* scratch) const;
    };
    std::unique_ptr<RegionScratch, GiveBack> borrow();

private:
    std::mutex m_mutex;
    std::unique_ptr<RegionScratch> m_free;
};

/// Where a count of rows comes from: the elements of the region's input by so many each.
struct RowCount {
    size_t input = 0, width = 1;

    friend bool operator==(const RowCount& a, const RowCount& b) {
        return a.input == b.input && a.width == b.width;
    }
};

/// Rows that operations of a region read or write.
struct RegionValue {
    static constexpr size_t none = SIZE_MAX;

    size_t width = 0;
    RowCount rows;
    size_t input = none;   ///< the region's input that it is; none: an operation writes it
    size_t output = none;  ///< the region's output that it is
};

/// An input of an operation that is no rows.
struct RegionTensor {
    bool is_cache = false;  ///< of the region's caches, or of its inputs
    size_t number = 0;
};

/// One operation: its inputs and outputs by number.
struct RegionStep {
    std::shared_ptr<const NativeOp> op;  ///< its own inputs, as a node, mean nothing
    std::string name;                    ///< of the node that it was
    std::vector<size_t> rows;            ///< values; its first inputs
    std::vector<RegionTensor> tensors;   ///< its other inputs
    std::vector<size_t> outputs;         ///< values
};

/// What a region computes: steps in an order that has each value written before it is read.
struct RegionDescription {
    struct Output {
        size_t value;
        ov::PartialShape shape;  ///< at most one dimension is dynamic, and that is not the last
    };
    std::string name;  ///< of its node
    std::vector<RegionValue> values;
    std::vector<RegionStep> steps;
    std::vector<Output> outputs;
    std::vector<CacheInput> caches;        ///< all of the model's that its directory names
    size_t directory = RegionValue::none;  ///< the region's input that it is, if there are any
};

/// A description and all that calls need beyond it. Shared by a node and its copies: the plugin
/// copies a node at every inference.
class RegionPlan {
public:
    /// Throws std::logic_error for a description that is none.
    explicit RegionPlan(RegionDescription description);

    const RegionDescription& description() const { return m_description; }
    RegionProfile& profile() const { return m_profile; }

    /// Runs the steps one after the other. May be called by several threads at once. Throws what
    /// an operation throws, with its name before the message.
    void run(ov::TensorVector& outputs, const ov::TensorVector& inputs) const;

private:
    /// Memory that values with as many rows have one after the other.
    struct Slot {
        RowCount rows;
        size_t width = 0;
    };

    void assign_slots();
    void place_values(RegionScratch& scratch, ov::TensorVector& outputs,
                      const ov::TensorVector& inputs) const;
    void run_step(size_t i, RegionScratch& scratch, const ov::TensorVector& inputs,
                  const std::vector<ov::Tensor>& caches) const;

    RegionDescription m_description;
    std::vector<Slot> m_slots;
    std::vector<size_t> m_value_slots;  // of each value; none where it is no slot's
    mutable RegionScratchPool m_scratch;
    mutable RegionProfile m_profile;
};

/// Runs operations that hang together one after the other, on memory of its own for what they pass
/// on to each other.
///
/// A node of a type that the CPU plugin does not know costs it 7 to 14 microseconds at every
/// inference, the more the more inputs (docs/performance.md): about as much as a small matrix does.
/// So all of a model's layers are one.
class NativeRegion : public ov::op::Op {
public:
    OPENVINO_OP("NativeRegion", "pagewheel")

    NativeRegion() = default;
    NativeRegion(const ov::OutputVector& inputs, std::shared_ptr<const RegionPlan> plan);

    void validate_and_infer_types() override;
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override;
    bool visit_attributes(ov::AttributeVisitor& visitor) override;
    bool has_evaluate() const override { return true; }
    bool evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const override;

    const std::shared_ptr<const RegionPlan>& plan() const { return m_plan; }

private:
    std::shared_ptr<const RegionPlan> m_plan;
};

}  // namespace pagewheel
