#include "runtime/trainer/loader.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/random.hpp"

namespace rackrail::trainer {
namespace {

struct BatchBuffer {
  std::vector<float> features;
  std::vector<std::int32_t> labels;
};

/// Copies an image so that pixel (y, x) comes from (y + dy, x + dx).
void copy_shifted(const ImageShape& shape, std::int64_t dy, std::int64_t dx,
                  std::span<const float> from, float* to) {
  const std::int64_t row = shape.width * shape.channels;
  for (std::int64_t y = 0; y < shape.height; ++y) {
    for (std::int64_t x = 0; x < shape.width; ++x) {
      const std::int64_t source_y = y + dy;
      const std::int64_t source_x = x + dx;
      float* pixel = to + y * row + x * shape.channels;
      if (source_y < 0 || source_y >= shape.height || source_x < 0 || source_x >= shape.width) {
        std::fill_n(pixel, shape.channels, 0.0F);
      } else {
        std::copy_n(from.data() + source_y * row + source_x * shape.channels, shape.channels,
                    pixel);
      }
    }
  }
}

}  // namespace

// A buffer is in exactly one place: free, ready, in the filling thread's hands, or lent to the
// consumer. So no buffer is ever touched by two threads, and the lock covers only the queues.
struct BatchLoader::Impl {
  Impl(const Dataset& the_dataset, const Shard& the_shard, const LoaderOptions& options)
      : dataset(the_dataset),
        shard(the_shard),
        stream(the_dataset.size(), options.seed),
        shift_key(mix64(options.seed)),
        max_shift(options.max_shift),
        position(options.position) {
    const auto samples = static_cast<std::size_t>(shard.local_batch());
    const auto width = static_cast<std::size_t>(dataset.image().features());
    // One more than `depth`: the one that the consumer holds.
    for (std::size_t i = 0; i < std::max<std::size_t>(options.depth, 1) + 1; ++i) {
      free.push_back(
          BatchBuffer{std::vector<float>(samples * width), std::vector<std::int32_t>(samples)});
    }
    filler = std::jthread([this](const std::stop_token& stop) { fill_ahead(stop); });
  }

  void fill_ahead(const std::stop_token& stop) {
    for (;;) {
      std::unique_lock lock(mutex);
      if (!changed.wait(lock, stop, [this] { return !free.empty(); })) {
        return;
      }
      BatchBuffer buffer = std::move(free.front());
      free.pop_front();
      lock.unlock();

      fill(buffer);

      lock.lock();
      ready.push_back(std::move(buffer));
      changed.notify_all();
    }
  }

  void fill(BatchBuffer& buffer) {
    const auto width = static_cast<std::size_t>(dataset.image().features());
    const std::int64_t begin = shard.begin(position, pass);
    for (std::size_t i = 0; i < buffer.labels.size(); ++i) {
      const std::int64_t place = begin + static_cast<std::int64_t>(i);
      const BatchView sample = dataset.view(stream.at(place), 1);
      const std::uint64_t bits = random_bits(shift_key, static_cast<std::uint64_t>(place));
      copy_shifted(dataset.image(), shift(bits >> 32U), shift(bits & 0xffffffffU), sample.features,
                   buffer.features.data() + i * width);
      buffer.labels[i] = sample.labels.front();
    }
    if (++pass == shard.passes()) {
      pass = 0;
      position += shard.global_batch();
    }
  }

  /// Uniform in [−max_shift, max_shift].
  std::int64_t shift(std::uint64_t bits) const {
    return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(2 * max_shift + 1)) -
           max_shift;
  }

  BatchView next() {
    std::unique_lock lock(mutex);
    if (has_lent) {
      free.push_back(std::move(lent));
      changed.notify_all();
    }
    changed.wait(lock, [this] { return !ready.empty(); });
    lent = std::move(ready.front());
    ready.pop_front();
    has_lent = true;
    return {lent.features, lent.labels};
  }

  const Dataset& dataset;
  const Shard shard;
  SampleStream stream;  // of the filling thread
  const std::uint64_t shift_key;
  const std::int64_t max_shift;
  std::int64_t position;  // of the filling thread: where the step being filled begins
  std::int64_t pass = 0;  // of the filling thread

  std::mutex mutex;
  std::condition_variable_any changed;
  std::deque<BatchBuffer> free;
  std::deque<BatchBuffer> ready;
  BatchBuffer lent;
  bool has_lent = false;
  std::jthread filler;  // last, so that it ends before what it uses
};

BatchLoader::BatchLoader(const Dataset& dataset, const Shard& shard, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(dataset, shard, options)) {}

BatchLoader::~BatchLoader() = default;

BatchView BatchLoader::next() { return impl_->next(); }

}  // namespace rackrail::trainer
