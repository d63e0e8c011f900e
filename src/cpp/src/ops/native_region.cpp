#include "ops/native_region.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.hpp"
#include "kernels/team.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

struct Entry {
    uint64_t address = 0, blocks = 0;
};
static_assert(sizeof(Entry) == cache_entry_bytes);

/// The product of a shape's dimensions, less those that are dynamic.
size_t static_size(const ov::PartialShape& shape) {
    size_t size = 1;
    for (const ov::Dimension& dimension : shape)
        if (dimension.is_static()) size *= size_t(dimension.get_length());
    return size;
}

void check_description(const RegionDescription& region) {
    std::vector<bool> known(region.values.size());
    for (size_t i = 0; i < region.values.size(); ++i)
        known[i] = region.values[i].input != RegionValue::none;
    for (const RegionStep& step : region.steps) {
        check_invariant(step.op && step.op->num_row_inputs() == step.rows.size() &&
                            step.op->get_input_size() == step.rows.size() + step.tensors.size() &&
                            step.op->get_output_size() == step.outputs.size(),
                        step.name, " has other inputs or outputs in its region");
        for (const size_t value : step.rows)
            check_invariant(known.at(value), step.name, " reads value ", value, " too early");
        for (const size_t value : step.outputs) {
            check_invariant(!known.at(value), step.name, " writes value ", value, " again");
            known[value] = true;
        }
    }
    for (size_t i = 0; i < region.outputs.size(); ++i) {
        const auto& [value, shape] = region.outputs[i];
        check_invariant(region.values.at(value).output == i, "value ", value, " is no output ", i);
        const auto dynamic = std::count_if(shape.begin(), shape.end(),
                                           [](const ov::Dimension& d) { return d.is_dynamic(); });
        check_invariant(dynamic <= 1, "output ", i, " of a region has shape ", shape);
    }
}

}  // namespace

ov::Tensor make_cache_directory(const std::vector<ov::Tensor>& caches) {
    ov::Tensor directory(ov::element::u8, {caches.size(), sizeof(Entry)});
    auto* bytes = directory.data<uint8_t>();
    for (const ov::Tensor& cache : caches) {
        const Entry entry{uint64_t(reinterpret_cast<uintptr_t>(cache.data())),
                          cache.get_shape().at(0)};
        std::memcpy(bytes, &entry, sizeof(entry));
        bytes += sizeof(entry);
    }
    return directory;
}

const std::vector<ov::Tensor>& CacheDirectory::read(const std::vector<CacheInput>& caches,
                                                    const ov::Tensor& directory) {
    const size_t size = caches.size() * sizeof(Entry);
    check_argument(
        directory.get_element_type() == ov::element::u8 && directory.get_byte_size() == size,
        "the cache directory is ", directory.get_element_type(), " ", directory.get_shape(),
        ", expected u8 [", caches.size(), ",", sizeof(Entry), "]");
    const auto* bytes = directory.data<const uint8_t>();
    if (m_tensors.size() == caches.size() && std::memcmp(m_bytes.data(), bytes, size) == 0)
        return m_tensors;
    m_tensors.clear();
    for (size_t i = 0; i < caches.size(); ++i) {
        Entry entry;
        std::memcpy(&entry, bytes + i * sizeof(Entry), sizeof(Entry));
        check_argument(entry.address != 0 && entry.blocks != 0, "the cache directory has no ",
                       caches[i].name);
        ov::Shape shape{size_t(entry.blocks)};
        shape.insert(shape.end(), caches[i].block_shape.begin(), caches[i].block_shape.end());
        m_tensors.emplace_back(caches[i].type, shape,
                               reinterpret_cast<void*>(uintptr_t(entry.address)));
    }
    m_bytes.assign(bytes, bytes + size);
    return m_tensors;
}

void RegionScratchPool::GiveBack::operator()(RegionScratch* scratch) const {
    const std::lock_guard lock(pool->m_mutex);
    scratch->next = std::move(pool->m_free);
    pool->m_free.reset(scratch);
}

std::unique_ptr<RegionScratch, RegionScratchPool::GiveBack> RegionScratchPool::borrow() {
    const std::lock_guard lock(m_mutex);
    std::unique_ptr<RegionScratch> scratch =
        m_free ? std::move(m_free) : std::make_unique<RegionScratch>();
    m_free = std::move(scratch->next);
    return {scratch.release(), GiveBack{this}};
}

RegionPlan::RegionPlan(RegionDescription description)
    : m_description(std::move(description)), m_profile(m_description.steps.size()) {
    check_description(m_description);
    assign_slots();
}

void RegionPlan::assign_slots() {
    const auto& values = m_description.values;
    const auto& steps = m_description.steps;
    std::vector<size_t> last_use(values.size(), 0);
    for (size_t s = 0; s < steps.size(); ++s) {
        for (const size_t value : steps[s].outputs) last_use[value] = s;
        for (const size_t value : steps[s].rows) last_use[value] = s;
    }
    m_value_slots.assign(values.size(), RegionValue::none);
    std::vector<bool> taken;
    for (size_t s = 0; s < steps.size(); ++s) {
        for (const size_t value : steps[s].outputs) {
            if (values[value].output != RegionValue::none) continue;
            // The free slot that grows least, and of those the smallest.
            const size_t width = values[value].width;
            size_t best = m_slots.size();
            const auto key = [&](size_t slot) {
                const size_t has = m_slots[slot].width;
                return std::pair(width > has ? width - has : 0, has);
            };
            for (size_t slot = 0; slot < m_slots.size(); ++slot)
                if (!taken[slot] && m_slots[slot].rows == values[value].rows &&
                    (best == m_slots.size() || key(slot) < key(best)))
                    best = slot;
            if (best == m_slots.size()) {
                m_slots.push_back({values[value].rows, 0});
                taken.push_back(false);
            }
            m_slots[best].width = std::max(m_slots[best].width, width);
            taken[best] = true;
            m_value_slots[value] = best;
        }
        for (size_t value = 0; value < values.size(); ++value)
            if (m_value_slots[value] != RegionValue::none && last_use[value] == s)
                taken[m_value_slots[value]] = false;
    }
}

void RegionPlan::place_values(RegionScratch& scratch, ov::TensorVector& outputs,
                              const ov::TensorVector& inputs) const {
    const auto count_rows = [&](const RowCount& rows) {
        return inputs[rows.input].get_size() / rows.width;
    };
    constexpr size_t line = 16;  // floats of a cache line
    size_t floats = 0;
    scratch.slots.resize(m_slots.size());
    for (size_t i = 0; i < m_slots.size(); ++i) {
        scratch.slots[i] = floats;
        const size_t size = count_rows(m_slots[i].rows) * m_slots[i].width;
        floats += (size + line - 1) / line * line;
    }
    float* base = scratch.memory.resize(floats);
    const auto& values = m_description.values;
    scratch.values.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
        scratch.values[i].count = count_rows(values[i].rows);
        if (values[i].input != RegionValue::none)
            scratch.values[i].values =
                const_cast<float*>(inputs[values[i].input].data<const float>());
        else if (m_value_slots[i] != RegionValue::none)
            scratch.values[i].values = base + scratch.slots[m_value_slots[i]];
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
        const auto& [number, shape] = m_description.outputs[i];
        RegionScratch::Value& value = scratch.values[number];
        scratch.shape.resize(shape.size());
        for (size_t d = 0; d < shape.size(); ++d)
            scratch.shape[d] = shape[d].is_static()
                                   ? size_t(shape[d].get_length())
                                   : value.count * values[number].width / static_size(shape);
        if (outputs[i].get_shape() != scratch.shape) outputs[i].set_shape(scratch.shape);
        check_invariant(outputs[i].get_size() == value.count * values[number].width, "output ", i,
                        " of a region is ", outputs[i].get_shape(), " for ", value.count, " rows");
        value.values = outputs[i].data<float>();
    }
}

void RegionPlan::run_step(size_t i, RegionScratch& scratch, const ov::TensorVector& inputs,
                          const std::vector<ov::Tensor>& caches) const {
    const RegionStep& step = m_description.steps[i];
    scratch.inputs.rows.clear();
    for (const size_t value : step.rows)
        scratch.inputs.rows.emplace_back(scratch.values[value].values, scratch.values[value].count,
                                         m_description.values[value].width);
    scratch.inputs.tensors.clear();
    for (const RegionTensor& tensor : step.tensors)
        scratch.inputs.tensors.push_back(tensor.is_cache ? &caches[tensor.number]
                                                         : &inputs[tensor.number]);
    scratch.outputs.clear();
    for (const size_t value : step.outputs) scratch.outputs.push_back(scratch.values[value].values);
    step.op->run(scratch.inputs, scratch.outputs.data());
}

void RegionPlan::run(ov::TensorVector& outputs, const ov::TensorVector& inputs) const {
    const kernels::TeamSession session;
    const auto borrowed = m_scratch.borrow();
    RegionScratch& scratch = *borrowed;
    place_values(scratch, outputs, inputs);
    static const std::vector<ov::Tensor> none;
    const std::vector<ov::Tensor>& caches =
        m_description.caches.empty()
            ? none
            : scratch.caches.read(m_description.caches, inputs[m_description.directory]);
    const bool profiled = m_profile.is_on();
    size_t at = 0;
    const auto named = [&](const std::exception& error) {
        return concat(m_description.steps[at].name, ": ", error.what());
    };
    try {
        for (; at < m_description.steps.size(); ++at) {
            if (!profiled) {
                run_step(at, scratch, inputs, caches);
                continue;
            }
            const auto begin = RegionProfile::Clock::now();
            run_step(at, scratch, inputs, caches);
            m_profile.add(at, RegionProfile::Clock::now() - begin);
        }
    } catch (const InvalidArgument& error) {
        throw InvalidArgument(named(error), error.code(), error.parameter());
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& error) {
        throw Error(named(error));
    }
    if (profiled) m_profile.end_call();
}

NativeRegion::NativeRegion(const ov::OutputVector& inputs, std::shared_ptr<const RegionPlan> plan)
    : Op(inputs), m_plan(std::move(plan)) {
    constructor_validate_and_infer_types();
}

void NativeRegion::validate_and_infer_types() {
    const RegionDescription& region = m_plan->description();
    set_output_size(region.outputs.size());
    for (size_t i = 0; i < region.outputs.size(); ++i) {
        ov::PartialShape shape = region.outputs[i].shape;
        const RegionValue& value = region.values[region.outputs[i].value];
        const ov::PartialShape& rows = get_input_partial_shape(value.rows.input);
        if (shape.is_dynamic() && rows.is_static()) {
            const size_t count = static_size(rows) / value.rows.width;
            const size_t dimension = count * value.width / static_size(shape);
            for (ov::Dimension& each : shape)
                if (each.is_dynamic()) each = int64_t(dimension);
        }
        set_output_type(i, ov::element::f32, shape);
    }
}

std::shared_ptr<ov::Node> NativeRegion::clone_with_new_inputs(
    const ov::OutputVector& inputs) const {
    return std::make_shared<NativeRegion>(inputs, m_plan);
}

bool NativeRegion::visit_attributes(ov::AttributeVisitor& visitor) {
    // The runtime merges nodes that look alike: these are told apart by where their plans are.
    std::string identity = concat(static_cast<const void*>(m_plan.get()));
    visitor.on_attribute("plan", identity);
    return true;
}

bool NativeRegion::evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const {
    m_plan->run(outputs, inputs);
    return true;
}

}  // namespace pagewheel
