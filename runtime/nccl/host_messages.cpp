#include "runtime/nccl/host_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/cuda/handles.hpp"

namespace rackrail::runtime {

/// A part of a message, and where it waits on the host.
struct HostMessages::Piece {
  Exchange* exchange = nullptr;
  std::size_t message = 0;  ///< index in the operation
  std::size_t offset = 0;   ///< in the message
  std::size_t bytes = 0;
  std::size_t staged = 0;    ///< offset in the exchange's memory
  std::uint32_t number = 0;  ///< in its message: SliceHeader::slice
  bool has_arrived = false;  ///< of the turn; guarded by mutex_
};

struct HostMessages::Exchange : std::enable_shared_from_this<Exchange> {
  HostMessages* owner = nullptr;
  BucketId bucket;
  std::vector<ExchangeOperation::Message> messages;  ///< a copy: programs may end before this
  std::vector<Piece> sends;
  std::vector<Piece> receives;
  PinnedBuffer memory;
  // Guarded by mutex_.
  std::uint32_t turn = 0;  ///< how often it has begun
  std::map<Rank, std::size_t> unsent;
};

struct HostMessages::Early {
  SliceHeader header;
  std::vector<std::byte> payload;
};

namespace {

constexpr Duration kLongestSleep = Duration(50'000'000'000);  // 50 ms

void call_on_host(cudaStream_t stream, void (*function)(void*), void* argument) {
  check_cuda(cudaLaunchHostFunc(stream, function, argument), "cudaLaunchHostFunc");
}

void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
}

}  // namespace

HostMessages::HostMessages(Transport& transport, const Options& options)
    : transport_(transport), options_(options) {
  if (options.piece_bytes == 0) {
    throw RuntimeFailure("messages of a device: found pieces of 0 bytes, expected at least 1");
  }
  transport.set_handlers(
      [this](Rank source, const SliceHeader& header, std::span<const std::byte> payload) {
        on_receive(source, header, payload);
      },
      [this](Rank peer, const std::string& reason) { on_peer_error(peer, reason); });
}

HostMessages::~HostMessages() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    transport_.wake();
    thread_.join();
  }
  transport_.set_handlers({}, {});
}

void HostMessages::prepare(BucketId bucket, const DeviceProgram& program) {
  for (const DeviceOperation& operation : program.operations) {
    const auto* what = std::get_if<ExchangeOperation>(&operation.what);
    if (what == nullptr) {
      continue;
    }
    auto exchange = std::make_shared<Exchange>();
    exchange->owner = this;
    exchange->bucket = bucket;
    exchange->messages = what->messages;
    std::size_t staged = 0;
    for (std::size_t m = 0; m < what->messages.size(); ++m) {
      const ExchangeOperation::Message& message = what->messages[m];
      auto& pieces = message.is_send ? exchange->sends : exchange->receives;
      if (!message.is_send) {
        receives_[{bucket.value(), message.transfer.value()}] = {exchange.get(), pieces.size()};
      }
      std::uint32_t number = 0;
      for (std::size_t offset = 0; offset < message.bytes; offset += options_.piece_bytes) {
        const std::size_t bytes = std::min(options_.piece_bytes, message.bytes - offset);
        pieces.push_back({exchange.get(), m, offset, bytes, staged, number++});
        staged += bytes;
      }
    }
    exchange->memory = PinnedBuffer(staged);
    exchanges_[what] = std::move(exchange);
  }
}

void HostMessages::enqueue(BucketId /*bucket*/, const ExchangeOperation& operation,
                           std::span<std::byte> gradient, std::span<std::byte> scratch,
                           cudaStream_t stream) {
  check_health();
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { run(); });
  }
  Exchange& exchange = *exchanges_.at(&operation);
  const auto on_device = [&](const Piece& piece) {
    const ExchangeOperation::Message& message = operation.messages[piece.message];
    return (message.is_gradient ? gradient : scratch)
        .subspan(message.offset + piece.offset, piece.bytes)
        .data();
  };
  call_on_host(stream, begin, &exchange);
  for (Piece& piece : exchange.sends) {
    copy(exchange.memory.data() + piece.staged, on_device(piece), piece.bytes,
         cudaMemcpyDeviceToHost, stream);
    call_on_host(stream, post, &piece);
  }
  for (Piece& piece : exchange.receives) {
    call_on_host(stream, await, &piece);
    copy(on_device(piece), exchange.memory.data() + piece.staged, piece.bytes,
         cudaMemcpyHostToDevice, stream);
  }
  call_on_host(stream, await_sends, &exchange);
}

void HostMessages::check_health() {
  const std::lock_guard lock(mutex_);
  if (failure_) {
    throw PeerLostError(*failure_);
  }
}

void HostMessages::abort(const std::string& reason) { fail(reason); }

// ---- what streams call: nothing of CUDA, and no exceptions ----

void HostMessages::begin(void* argument) {
  Exchange& exchange = *static_cast<Exchange*>(argument);
  HostMessages& self = *exchange.owner;
  std::uint32_t turn = 0;
  {
    const std::lock_guard lock(self.mutex_);
    turn = ++exchange.turn;
    for (Piece& piece : exchange.receives) {
      piece.has_arrived = false;
    }
    for (const Piece& piece : exchange.sends) {
      ++exchange.unsent[exchange.messages[piece.message].peer];
    }
  }
  self.give({&exchange, nullptr, turn});
}

void HostMessages::post(void* argument) {
  const Piece& piece = *static_cast<const Piece*>(argument);
  HostMessages& self = *piece.exchange->owner;
  std::uint32_t turn = 0;
  {
    const std::lock_guard lock(self.mutex_);
    turn = piece.exchange->turn;
  }
  self.give({piece.exchange, &piece, turn});
}

void HostMessages::await(void* argument) {
  const Piece& piece = *static_cast<const Piece*>(argument);
  HostMessages& self = *piece.exchange->owner;
  std::unique_lock lock(self.mutex_);
  self.changed_.wait(lock, [&] { return piece.has_arrived || self.failure_; });
}

void HostMessages::await_sends(void* argument) {
  const Exchange& exchange = *static_cast<const Exchange*>(argument);
  HostMessages& self = *exchange.owner;
  std::unique_lock lock(self.mutex_);
  self.changed_.wait(lock, [&] {
    return self.failure_ || std::all_of(exchange.unsent.begin(), exchange.unsent.end(),
                                        [](const auto& each) { return each.second == 0; });
  });
}

void HostMessages::give(Task task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(task);
  }
  transport_.wake();
}

// ---- the thread ----

void HostMessages::run() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) {
        return;
      }
    }
    try {
      if (take_tasks() + transport_.progress() == 0) {
        transport_.wait(kLongestSleep);
      }
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }
}

std::size_t HostMessages::take_tasks() {
  std::deque<Task> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const Task& task : tasks) {
    if (task.piece != nullptr) {
      send(task);
      continue;
    }
    require_peers(*task.exchange);
    for (const ExchangeOperation::Message& message : task.exchange->messages) {
      const auto early = early_.find({task.exchange->bucket.value(), message.transfer.value()});
      if (message.is_send || early == early_.end()) {
        continue;
      }
      std::erase_if(early->second, [&](const Early& each) {
        const bool is_now = each.header.step == task.turn;
        if (is_now) {
          place(*task.exchange, each.header, each.payload);
        }
        return is_now;
      });
    }
  }
  return tasks.size();
}

void HostMessages::send(const Task& task) {
  const Piece& piece = *task.piece;
  Exchange& exchange = *task.exchange;
  const ExchangeOperation::Message& message = exchange.messages[piece.message];
  {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      return;  // nobody waits for it, and what would be sent may be anything
    }
  }
  SliceHeader header;
  header.plan = options_.plan;
  header.epoch = options_.epoch;
  header.step = task.turn;
  header.bucket = exchange.bucket.value();
  header.transfer = message.transfer.value();
  header.slice = piece.number;
  header.bytes = static_cast<std::uint32_t>(piece.bytes);
  transport_.send(message.peer, header, {exchange.memory.data() + piece.staged, piece.bytes},
                  [meeting = meeting_, kept = exchange.shared_from_this(), peer = message.peer] {
                    const std::lock_guard lock(meeting->mutex);
                    --kept->unsent[peer];
                    meeting->changed.notify_all();
                  });
}

void HostMessages::on_receive(Rank source, const SliceHeader& header,
                              std::span<const std::byte> payload) {
  if (header.plan != options_.plan || header.epoch != options_.epoch) {
    return;
  }
  const Key key{header.bucket, header.transfer};
  const auto found = receives_.find(key);
  if (found == receives_.end()) {
    fail(fmt::format("rank {} sent transfer {} of bucket {}, which is none of ours", source.value(),
                     header.transfer, header.bucket));
    return;
  }
  Exchange& exchange = *found->second.first;
  std::uint32_t turn = 0;
  {
    const std::lock_guard lock(mutex_);
    turn = exchange.turn;
  }
  if (header.step == turn) {
    place(exchange, header, payload);
  } else if (header.step > turn) {
    early_[key].push_back({header, {payload.begin(), payload.end()}});
  }
}

void HostMessages::place(Exchange& exchange, const SliceHeader& header,
                         std::span<const std::byte> payload) {
  const std::size_t first = receives_.at({header.bucket, header.transfer}).second;
  const std::size_t index = first + header.slice;
  if (index >= exchange.receives.size() || exchange.receives[index].number != header.slice ||
      exchange.receives[index].bytes != payload.size()) {
    fail(fmt::format("a piece of transfer {} of bucket {} is another than expected",
                     header.transfer, header.bucket));
    return;
  }
  Piece& piece = exchange.receives[index];
  std::memcpy(exchange.memory.data() + piece.staged, payload.data(), payload.size());
  const std::lock_guard lock(mutex_);
  piece.has_arrived = true;
  changed_.notify_all();
}

void HostMessages::on_peer_error(Rank peer, const std::string& reason) {
  lost_[peer] = fmt::format("rank {} cannot be reached: {}", peer.value(), reason);
  for (const auto& [operation, exchange] : exchanges_) {
    require_peers(*exchange);
  }
}

/// Fails where an exchange that has begun still needs a peer that is lost.
void HostMessages::require_peers(const Exchange& exchange) {
  std::optional<std::string> reason;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [peer, why] : lost_) {
      const auto unsent = exchange.unsent.find(peer);
      const bool is_needed =
          (unsent != exchange.unsent.end() && unsent->second != 0) ||
          (exchange.turn != 0 &&
           std::any_of(exchange.receives.begin(), exchange.receives.end(), [&](const Piece& p) {
             return !p.has_arrived && exchange.messages[p.message].peer == peer;
           }));
      if (is_needed) {
        reason = why;
      }
    }
  }
  if (reason) {
    fail(*reason);
  }
}

void HostMessages::fail(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!failure_) {
    failure_ = reason;
  }
  changed_.notify_all();
}

}  // namespace rackrail::runtime
