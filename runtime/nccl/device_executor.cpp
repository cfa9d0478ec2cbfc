#include "runtime/nccl/device_executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/bucket_program.hpp"
#include "runtime/cuda/graph.hpp"
#include "runtime/device/fused_sums.hpp"

namespace rackrail::runtime {

struct DeviceExecutor::Bucket {
  BucketId id;
  std::uint32_t schedule = 0;
  std::size_t elements = 0;
  DeviceProgram program;
  std::vector<CudaSignal> handovers;  ///< one for each change of lanes
  CudaSignal ready;                   ///< the gradient is there
  CudaSignal done;
  bool can_refuse = false;  ///< what arrives
  DeviceBuffer<std::byte> scratch;
  std::span<float> gradient;  ///< of this step; empty: not launched
};

namespace {

static_assert(kMostFusedPayloads <= kMostPayloads);

bool is_alone_everywhere(const RankGroups& groups) {
  return std::all_of(groups.begin(), groups.end(),
                     [](const auto& group) { return group.size() == 1; });
}

std::span<float> part(std::span<float> values, plan::ElementRange range) {
  return values.subspan(static_cast<std::size_t>(range.begin),
                        static_cast<std::size_t>(range.size()));
}

/// What others wait for comes before backward, which fills the device.
std::array<CudaStream, kDeviceLanes> urgent_streams() {
  return {CudaStream::urgent(), CudaStream::urgent(), CudaStream::urgent(), CudaStream::urgent(),
          CudaStream::urgent()};
}

template <typename T>
DeviceBuffer<T> zeros(std::size_t size, cudaStream_t stream) {
  DeviceBuffer<T> buffer(size);
  if (size != 0) {
    check_cuda(cudaMemsetAsync(buffer.data(), 0, size * sizeof(T), stream), "cudaMemsetAsync");
  }
  return buffer;
}

}  // namespace

DeviceCommunicators DeviceCommunicators::make(NcclCommunicator all, const RankGroups& groups,
                                              Rank self) {
  DeviceCommunicators made{.world = std::move(all), .sums = {}, .gathers = {}};
  if (is_alone_everywhere(groups)) {
    return made;
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto found = std::find(groups[g].begin(), groups[g].end(), self);
    if (found != groups[g].end()) {
      const auto place = static_cast<int>(found - groups[g].begin());
      const auto size = static_cast<int>(groups[g].size());
      made.sums = made.world->split(static_cast<int>(g), place, size);
      made.gathers = made.world->split(static_cast<int>(g), place, size);
      break;
    }
  }
  return made;
}

void DeviceCommunicators::abort() noexcept {
  if (!world) {
    return;
  }
  std::array<NcclCommunicator*, 3> all{&*world, sums ? &*sums : &*world,
                                       gathers ? &*gathers : &*world};
  NcclCommunicator::abort_all(all);
}

bool DeviceCommunicators::close(Duration deadline) noexcept {
  bool is_orderly = true;
  for (auto* each : {&gathers, &sums, &world}) {
    is_orderly = (!*each || (*each)->close(deadline)) && is_orderly;
  }
  return is_orderly;
}

DeviceExecutor::DeviceExecutor(const plan::Plan& plan, Rank self, const RankGroups& groups,
                               DeviceCommunicators& communicators, DeviceMessages& messages)
    : plan_(plan),
      self_(self),
      communicators_(communicators),
      messages_(messages),
      streams_(urgent_streams()) {
  std::vector<std::vector<Stage>> stages;
  for (const plan::TransferGraph& graph : plan.schedules) {
    stages.push_back(find_stages(graph, groups));
    auto& codecs = codecs_.emplace_back();
    for (const plan::Codec& codec : graph.codecs()) {
      codecs.push_back(make_device_codec(codec));
    }
  }
  refused_ = zeros<std::uint32_t>(1, stream(DeviceLane::kDecode));
  refused_here_ = PinnedBuffer(plan.buckets.size() * sizeof(std::uint32_t));
  std::fill_n(reinterpret_cast<std::uint32_t*>(refused_here_.data()), plan.buckets.size(), 0U);
  std::size_t codec_scratch = 0;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    auto& bucket = *buckets_.emplace_back(std::make_unique<Bucket>());
    bucket.id = BucketId(b);
    bucket.schedule = plan.buckets[b].schedule;
    bucket.elements = static_cast<std::size_t>(plan.buckets[b].elements);
    bucket.program = make_device_program(plan, bucket.id, self, groups, stages[bucket.schedule]);
    fuse_sums(bucket.program,
              [&](std::uint8_t codec) { return codec_of(bucket, codec).can_reduce(); });
    codec_scratch = std::max(codec_scratch, prepare(bucket));
    messages.prepare(bucket.id, bucket.program);
    messages.learn(bucket.scratch.span());
  }
  codec_scratch_ = DeviceBuffer<std::byte>(codec_scratch);
  rehearse();
  for (const CudaStream& each : streams_) {
    each.synchronize();  // what was cleared is clear for every stream
  }
}

DeviceExecutor::~DeviceExecutor() {
  // Memory and events must not go before what works with them, which has ended or soon will.
  for (const CudaStream& each : streams_) {
    static_cast<void>(cudaStreamSynchronize(each.get()));
  }
}

/// Takes memory and events; returns the scratch memory that its codecs need.
std::size_t DeviceExecutor::prepare(Bucket& bucket) {
  bucket.scratch = DeviceBuffer<std::byte>(bucket.program.scratch_bytes);
  const auto& operations = bucket.program.operations;
  std::size_t codec_scratch = 0;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (i > 0 && operations[i].lane != operations[i - 1].lane) {
      bucket.handovers.emplace_back();
    }
    if (const auto* decode = std::get_if<DecodeOperation>(&operations[i].what)) {
      bucket.can_refuse = bucket.can_refuse || codec_of(bucket, decode->codec).can_refuse();
    }
    const auto* encode = std::get_if<EncodeOperation>(&operations[i].what);
    if (encode == nullptr) {
      continue;
    }
    if (!encode->residual.empty()) {
      residuals_.try_emplace(encode->residual,
                             zeros<float>(static_cast<std::size_t>(encode->range.size()),
                                          stream(DeviceLane::kEncode)));
    }
    const DeviceCodec& codec = codec_of(bucket, encode->codec);
    for (const EncodedSlice& slice :
         encoded_slices(codec.descriptor(), encode->range, bucket.program.slice_elements)) {
      codec_scratch = std::max(codec_scratch,
                               codec.scratch_bytes(static_cast<std::size_t>(slice.range.size())));
    }
  }
  return codec_scratch;
}

/// Encodes and decodes zeros as each launch will. The driver loads a kernel when it is first
/// launched and may wait for the whole device then, where something else may be waiting for other
/// ranks.
void DeviceExecutor::rehearse() {
  const DeviceLane lane = DeviceLane::kEncode;
  std::size_t largest = 0;
  for (const auto& bucket : buckets_) {
    largest = std::max(largest, bucket->elements);
  }
  const auto gradient = zeros<float>(largest, stream(lane));
  const auto clear = [&](const auto& buffer) {
    if (buffer.size() != 0) {
      check_cuda(cudaMemsetAsync(buffer.data(), 0, buffer.span().size_bytes(), stream(lane)),
                 "cudaMemsetAsync");
    }
  };
  step_ = 0;
  for (const auto& bucket : buckets_) {
    bucket->gradient = gradient.span().first(bucket->elements);
    clear(bucket->scratch);
    for (const DeviceOperation& operation : bucket->program.operations) {
      if (const auto* encode = std::get_if<EncodeOperation>(&operation.what)) {
        enqueue(*encode, *bucket, lane);
      } else if (const auto* decode = std::get_if<DecodeOperation>(&operation.what)) {
        enqueue(*decode, *bucket, lane);
      }
    }
    bucket->gradient = {};
  }
  step_.reset();
  clear(refused_);  // zeros need not be what an encoder makes
  for (const auto& [name, residual] : residuals_) {
    clear(residual);
  }
  check_cuda(cudaStreamSynchronize(stream(lane)), "cudaStreamSynchronize");
}

void DeviceExecutor::begin_step(std::uint32_t step) {
  if (step_ && step != *step_ + 1) {
    throw RuntimeFailure(fmt::format("step {} was begun after step {}", step, *step_));
  }
  step_ = step;
  for (const auto& bucket : buckets_) {
    bucket->gradient = {};
  }
}

void DeviceExecutor::launch(BucketId id, std::span<float> gradient, cudaStream_t producer) {
  if (id.index() >= buckets_.size() || !step_) {
    throw RuntimeFailure(fmt::format("bucket {} was launched {}", id.value(),
                                     step_ ? "that the plan lacks" : "before the first step"));
  }
  Bucket& bucket = *buckets_[id.index()];
  if (gradient.size() != bucket.elements || !bucket.gradient.empty()) {
    throw RuntimeFailure(
        bucket.gradient.empty()
            ? fmt::format("bucket {} was launched with {} floats, the plan says {}", id.value(),
                          gradient.size(), bucket.elements)
            : fmt::format("bucket {} was launched twice in step {}", id.value(), *step_));
  }
  bucket.gradient = gradient;
  bucket.ready.record(producer);
  const std::vector<DeviceOperation>& operations = bucket.program.operations;
  if (operations.empty()) {
    bucket.done.record(producer);
    return;
  }
  bucket.ready.hold_back(stream(operations.front().lane));
  bucket.done.hold_back(stream(operations.front().lane));  // of the step before: one scratch memory
  auto handover = bucket.handovers.begin();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const DeviceLane lane = operations[i].lane;
    if (i > 0 && lane != operations[i - 1].lane) {
      handover->record(stream(operations[i - 1].lane));
      handover++->hold_back(stream(lane));
    }
    std::visit([&](const auto& what) { enqueue(what, bucket, lane); }, operations[i].what);
  }
  if (bucket.can_refuse) {
    check_cuda(cudaMemcpyAsync(refused_here(id), refused_.data(), sizeof(std::uint32_t),
                               cudaMemcpyDeviceToHost, stream(operations.back().lane)),
               "cudaMemcpyAsync");
  }
  bucket.done.record(stream(operations.back().lane));
}

void DeviceExecutor::wait_on(BucketId id, cudaStream_t consumer) {
  if (id.index() >= buckets_.size() || buckets_[id.index()]->gradient.empty()) {
    throw RuntimeFailure(fmt::format("bucket {} was not launched", id.value()));
  }
  buckets_[id.index()]->done.hold_back(consumer);
}

const DeviceProgram& DeviceExecutor::program(BucketId id) const {
  return buckets_[id.index()]->program;
}

bool DeviceExecutor::is_done(BucketId id) const {
  if (id.index() >= buckets_.size() || buckets_[id.index()]->gradient.empty()) {
    throw RuntimeFailure(fmt::format("bucket {} was not launched", id.value()));
  }
  return buckets_[id.index()]->done.has_passed();
}

std::map<std::string, std::vector<float>> DeviceExecutor::residuals() const {
  std::map<std::string, std::vector<float>> all;
  const cudaStream_t encoding = stream(DeviceLane::kEncode);
  for (const auto& [name, residual] : residuals_) {
    auto& values = all[name];
    values.resize(residual.size());
    copy_to_host(residual, std::span(values), encoding);
  }
  check_cuda(cudaStreamSynchronize(encoding), "cudaStreamSynchronize");
  return all;
}

void DeviceExecutor::set_residuals(const std::map<std::string, std::vector<float>>& residuals) {
  const cudaStream_t encoding = stream(DeviceLane::kEncode);
  for (const auto& [name, residual] : residuals_) {
    const auto found = residuals.find(name);
    if (found == residuals.end()) {
      check_cuda(cudaMemsetAsync(residual.data(), 0, residual.size() * sizeof(float), encoding),
                 "cudaMemsetAsync");
      continue;
    }
    if (found->second.size() != residual.size()) {
      throw RuntimeFailure(fmt::format("residual {} has {} floats, expected {}", name,
                                       found->second.size(), residual.size()));
    }
    copy_to_device<float>(found->second, residual, encoding);
  }
  check_cuda(cudaStreamSynchronize(encoding), "cudaStreamSynchronize");
}

void DeviceExecutor::check_health() {
  messages_.check_health();
  for (auto* child : {&communicators_.sums, &communicators_.gathers}) {
    if (*child) {
      (*child)->check_health();
    }
  }
}

std::uint32_t DeviceExecutor::refused_codes(BucketId bucket) const {
  return bucket.index() < buckets_.size() ? *refused_here(bucket) : 0;
}

void DeviceExecutor::enqueue(const CollectiveOperation& operation, const Bucket& bucket,
                             DeviceLane lane) {
  NcclCommunicator& communicator =
      lane == DeviceLane::kGather ? *communicators_.gathers : *communicators_.sums;
  const NcclFunctions& nccl = communicator.functions();
  const NcclHandle handle = communicator.handle();
  const cudaStream_t on = stream(lane);
  constexpr NcclType kFloat = NcclType::kFloat32;
  constexpr NcclOperator kSum = NcclOperator::kSum;
  const std::span<float> first = part(bucket.gradient, operation.parts.front().range);
  float* const base = first.data();
  float* const own = base + static_cast<std::size_t>(communicator.rank()) * first.size();

  NcclGroup group(communicator);
  switch (operation.kind) {
    case CollectiveKind::kReduceScatter:
      group.add(nccl.reduce_scatter(base, own, first.size(), kFloat, kSum, handle, on),
                "ncclReduceScatter");
      break;
    case CollectiveKind::kAllGather:
      group.add(nccl.all_gather(own, base, first.size(), kFloat, handle, on), "ncclAllGather");
      break;
    default:
      for (const CollectiveOperation::Part& each : operation.parts) {
        const std::span<float> values = part(bucket.gradient, each.range);
        float* const data = values.data();
        const auto root = static_cast<int>(each.root);
        if (operation.kind == CollectiveKind::kAllReduce) {
          group.add(nccl.all_reduce(data, data, values.size(), kFloat, kSum, handle, on),
                    "ncclAllReduce");
        } else if (operation.kind == CollectiveKind::kReduce) {
          group.add(nccl.reduce(data, data, values.size(), kFloat, kSum, root, handle, on),
                    "ncclReduce");
        } else {
          group.add(nccl.broadcast(data, data, values.size(), kFloat, root, handle, on),
                    "ncclBroadcast");
        }
      }
  }
  group.end();
}

void DeviceExecutor::enqueue(const ExchangeOperation& operation, const Bucket& bucket,
                             DeviceLane lane) {
  messages_.enqueue(bucket.id, operation, std::as_writable_bytes(bucket.gradient),
                    bucket.scratch.span(), stream(lane));
}

void DeviceExecutor::enqueue(const EncodeOperation& operation, const Bucket& bucket,
                             DeviceLane lane) {
  const DeviceCodec& codec = codec_of(bucket, operation.codec);
  const std::span<float> residual =
      operation.residual.empty() ? std::span<float>() : residuals_.at(operation.residual).span();
  for (const EncodedSlice& slice :
       encoded_slices(codec.descriptor(), operation.range, bucket.program.slice_elements)) {
    const std::span<float> values = part(bucket.gradient, slice.range);
    const std::span<std::byte> codes =
        bucket.scratch.span().subspan(operation.output + slice.offset, slice.bytes);
    const auto behind = static_cast<std::size_t>(slice.range.begin - operation.range.begin);
    const DeviceEncoding encoding{
        .input = values,
        .residual = residual.empty() ? residual : residual.subspan(behind, values.size()),
        .output = codes,
        .scratch = codec_scratch_.span(),
        .key = {rounding_stream(plan_, *step_, bucket.id, operation.op, self_), slice.range.begin}};
    if (operation.addends.empty()) {
      codec.encode(encoding, stream(lane));
    } else {
      std::array<const std::byte*, kMostFusedPayloads> payloads = {};
      std::transform(
          operation.addends.begin(), operation.addends.end(), payloads.begin(),
          [&](std::size_t addend) { return bucket.scratch.data() + addend + slice.offset; });
      codec.reduce(std::span(payloads).first(operation.addends.size()), values.size(), encoding,
                   stream(lane));
    }
    if (operation.op == plan::TransferOp::kCopy) {
      // The sender goes on with what the others get.
      codec.decode(codes, Into::kStore, values, refused_.data(), stream(lane));
    }
  }
}

void DeviceExecutor::enqueue(const DecodeOperation& operation, const Bucket& bucket,
                             DeviceLane lane) {
  const DeviceCodec& codec = codec_of(bucket, operation.codec);
  const Into into = operation.op == plan::TransferOp::kReduce ? Into::kAdd : Into::kStore;
  for (const EncodedSlice& slice :
       encoded_slices(codec.descriptor(), operation.range, bucket.program.slice_elements)) {
    codec.decode(bucket.scratch.span().subspan(operation.input + slice.offset, slice.bytes), into,
                 part(bucket.gradient, slice.range), refused_.data(), stream(lane));
  }
}

const DeviceCodec& DeviceExecutor::codec_of(const Bucket& bucket, std::uint8_t codec) const {
  return *codecs_[bucket.schedule][codec];
}

}  // namespace rackrail::runtime
