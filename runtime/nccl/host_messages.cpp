#include "runtime/nccl/host_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace rackrail::runtime {

/// A part of a message, and where it waits on the host.
struct HostMessages::Piece {
  Exchange* exchange = nullptr;
  std::size_t message = 0;  ///< index in the operation
  std::size_t offset = 0;   ///< in the message
  std::size_t bytes = 0;
  std::size_t staged = 0;    ///< offset in the exchange's memory
  std::uint32_t number = 0;  ///< in its message: SliceHeader::slice
  // Guarded by mutex_.
  std::uint32_t arrived = 0;  ///< the last turn that it has come in
  bool is_landing = false;    ///< it is being copied to its place
};

struct HostMessages::Exchange : std::enable_shared_from_this<Exchange> {
  /// The device's memory of a turn.
  struct Place {
    std::span<std::byte> gradient;
    std::span<std::byte> scratch;
  };

  bool is_under_way() const { return turn != ended; }
  std::span<std::byte> on_device(const Place& at, const Piece& piece) const {
    const ExchangeOperation::Message& message = messages[piece.message];
    return (message.is_gradient ? at.gradient : at.scratch)
        .subspan(message.offset + piece.offset, piece.bytes);
  }

  HostMessages* owner = nullptr;
  BucketId bucket;
  std::vector<ExchangeOperation::Message> messages;  ///< a copy: programs may end before this
  std::vector<Piece> sends;
  std::vector<Piece> receives;
  PinnedBuffer memory;  ///< none of direct ones
  // Guarded by mutex_.
  std::uint32_t turn = 0;    ///< how often it has begun
  std::uint32_t ended = 0;   ///< the last turn that has ended
  std::deque<Place> places;  ///< of the turns that are enqueued, from the one under way on
  std::map<Rank, std::size_t> unsent;
};

namespace {

constexpr Duration kLongestSleep = Duration(50'000'000'000);  // 50 ms
constexpr Duration kLongestSleepWhileDirect = 100_us;
constexpr auto kEndDeadline = std::chrono::seconds(2);
// What has failed once may fail whenever it is tried; nobody waits for it any more.
constexpr auto kAfterFailure = std::chrono::milliseconds(10);

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
  if (options.is_direct && transport.device_messaging() == nullptr) {
    throw RuntimeFailure("transport " + std::string(transport.name()) +
                         " takes no memory of a GPU here");
  }
  transport.set_handlers(
      [this](Rank source, const SliceHeader& header, std::span<const std::byte> payload) {
        on_receive(source, header, payload);
      },
      [this](Rank peer, const std::string& reason) { on_peer_error(peer, reason); });
  if (options.is_direct) {
    transport.device_messaging()->set_landing_handler(
        [this](Rank source, const SliceHeader& header) { return on_landing(source, header); });
  }
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
  if (options_.is_direct) {
    transport_.device_messaging()->set_landing_handler({});
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
        early_.expect(message.bytes);
      }
      std::uint32_t number = 0;
      for (std::size_t offset = 0; offset < message.bytes; offset += options_.piece_bytes) {
        const std::size_t bytes = std::min(options_.piece_bytes, message.bytes - offset);
        pieces.push_back({exchange.get(), m, offset, bytes, staged, number++});
        staged += bytes;
      }
    }
    if (!options_.is_direct) {
      exchange->memory = PinnedBuffer(staged);
    }
    exchanges_[what] = std::move(exchange);
  }
}

void HostMessages::start() {
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { run(); });
  }
}

/// What was enqueued before, on every rank, is of memory that its transport knows: so it ends,
/// whatever learning waits for.
void HostMessages::learn(std::span<std::byte> memory) {
  if (!options_.is_direct || memory.empty()) {
    return;
  }
  std::size_t& known = learnt_[memory.data()];
  if (known < memory.size()) {
    transport_.device_messaging()->learn(memory);
    known = memory.size();
  }
}

void HostMessages::enqueue(BucketId /*bucket*/, const ExchangeOperation& operation,
                           std::span<std::byte> gradient, std::span<std::byte> scratch,
                           cudaStream_t stream) {
  check_health();
  start();
  Exchange& exchange = *exchanges_.at(&operation);
  const Exchange::Place place{gradient, scratch};
  {
    const std::lock_guard lock(mutex_);
    exchange.places.push_back(place);
  }
  call_on_host(stream, begin, &exchange);
  if (options_.is_direct) {
    call_on_host(stream, post_all, &exchange);
    call_on_host(stream, await_all, &exchange);
  } else {
    for (Piece& piece : exchange.sends) {
      copy(exchange.memory.data() + piece.staged, exchange.on_device(place, piece).data(),
           piece.bytes, cudaMemcpyDeviceToHost, stream);
      call_on_host(stream, post, &piece);
    }
    for (Piece& piece : exchange.receives) {
      call_on_host(stream, await, &piece);
      copy(exchange.on_device(place, piece).data(), exchange.memory.data() + piece.staged,
           piece.bytes, cudaMemcpyHostToDevice, stream);
    }
  }
  call_on_host(stream, end, &exchange);
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

void HostMessages::post_all(void* argument) {
  for (Piece& piece : static_cast<Exchange*>(argument)->sends) {
    post(&piece);
  }
}

void HostMessages::await(void* argument) {
  const Piece& piece = *static_cast<const Piece*>(argument);
  HostMessages& self = *piece.exchange->owner;
  std::unique_lock lock(self.mutex_);
  self.changed_.wait(lock, [&] {
    return piece.arrived == piece.exchange->turn || (self.failure_ && !piece.is_landing);
  });
}

void HostMessages::await_all(void* argument) {
  for (Piece& piece : static_cast<Exchange*>(argument)->receives) {
    await(&piece);
  }
}

void HostMessages::end(void* argument) {
  Exchange& exchange = *static_cast<Exchange*>(argument);
  HostMessages& self = *exchange.owner;
  std::unique_lock lock(self.mutex_);
  self.changed_.wait(lock, [&] {
    return self.failure_ || std::all_of(exchange.unsent.begin(), exchange.unsent.end(),
                                        [](const auto& each) { return each.second == 0; });
  });
  exchange.ended = exchange.turn;
  exchange.places.pop_front();
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
  std::optional<CurrentDevice> here;
  bool has_device = !options_.is_direct;
  ShortSpin spin;
  while (!may_end()) {
    try {
      if (!has_device) {
        here.emplace(options_.device);
        copies_.emplace();
        has_device = true;
      }
      const ShortSpin::Clock::time_point start = ShortSpin::Clock::now();
      if (take_tasks() + transport_.progress() != 0) {
        spin.happened(start);
      } else if (spin.goes_on()) {
        spin.pause();
      } else {
        sleep();
      }
    } catch (const std::exception& error) {
      fail(error.what());
      std::this_thread::sleep_for(kAfterFailure);
    }
  }
  copies_.reset();
}

/// Armed while it copies, UCX puts a function of the host into the streams of its copies, to hear
/// of their end. The driver keeps that waiting behind a function of ours that waits for a message,
/// and the copies of that message behind it: nothing would ever arrive. So it is not armed then.
void HostMessages::sleep() {
  bool is_copying = false;
  {
    const std::lock_guard lock(mutex_);
    is_copying = meeting_->direct != 0;
  }
  if (is_copying) {
    transport_.sleep(kLongestSleepWhileDirect);
  } else {
    transport_.wait(kLongestSleep);
  }
}

/// Whether the thread is to stop, and the transport uses no memory of the device any more.
bool HostMessages::may_end() {
  const std::lock_guard lock(mutex_);
  if (!is_stopping_) {
    return false;
  }
  const auto now = std::chrono::steady_clock::now();
  if (!last_end_) {
    last_end_ = now + kEndDeadline;
  }
  return meeting_->direct == 0 || now > *last_end_;
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
    } else {
      take_early(*task.exchange, task.turn);
      require_peers(*task.exchange);
    }
  }
  return tasks.size();
}

void HostMessages::take_early(Exchange& exchange, std::uint32_t turn) {
  for (const ExchangeOperation::Message& message : exchange.messages) {
    if (message.is_send) {
      continue;
    }
    for (const EarlyPieces::Piece& each :
         early_.take(exchange.bucket.value(), message.transfer.value(), turn)) {
      if (Piece* piece = expected(each.source, each.header, each.payload.size())) {
        place(*piece, turn, each.payload);
      }
    }
  }
}

void HostMessages::send(const Task& task) {
  const Piece& piece = *task.piece;
  Exchange& exchange = *task.exchange;
  const ExchangeOperation::Message& message = exchange.messages[piece.message];
  std::span<const std::byte> payload;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      return;  // nobody waits for it, and what would be sent may be anything
    }
    if (options_.is_direct) {
      payload = exchange.on_device(exchange.places.front(), piece);
      ++meeting_->direct;
    } else {
      payload = {exchange.memory.data() + piece.staged, piece.bytes};
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
  SendCompletion done = [meeting = meeting_, kept = exchange.shared_from_this(),
                         peer = message.peer, is_direct = options_.is_direct] {
    const std::lock_guard lock(meeting->mutex);
    --kept->unsent[peer];
    meeting->direct -= is_direct ? 1 : 0;
    meeting->changed.notify_all();
  };
  if (!options_.is_direct) {
    transport_.send(message.peer, header, payload, std::move(done));
    return;
  }
  try {
    transport_.device_messaging()->send_from_device(message.peer, header, payload, std::move(done));
  } catch (...) {  // it has not begun, so that the end need not wait for it
    const std::lock_guard lock(mutex_);
    --meeting_->direct;
    throw;
  }
}

/// The piece that has arrived; null and a failure where it is none of ours.
HostMessages::Piece* HostMessages::expected(Rank source, const SliceHeader& header,
                                            std::size_t bytes) {
  const auto found = receives_.find({header.bucket, header.transfer});
  if (found == receives_.end()) {
    fail(fmt::format("rank {} sent transfer {} of bucket {}, which is none of ours", source.value(),
                     header.transfer, header.bucket));
    return nullptr;
  }
  Exchange& exchange = *found->second.first;
  const std::size_t index = found->second.second + header.slice;
  if (index >= exchange.receives.size() || exchange.receives[index].number != header.slice ||
      exchange.receives[index].bytes != bytes ||
      exchange.messages[exchange.receives[index].message].peer != source) {
    fail(fmt::format("a piece of transfer {} of bucket {} is another than expected",
                     header.transfer, header.bucket));
    return nullptr;
  }
  return &exchange.receives[index];
}

void HostMessages::on_receive(Rank source, const SliceHeader& header,
                              std::span<const std::byte> payload) {
  if (header.plan != options_.plan || header.epoch != options_.epoch) {
    return;
  }
  Piece* piece = expected(source, header, payload.size());
  if (piece == nullptr) {
    return;
  }
  bool is_late = false;
  bool has_place = false;
  {
    const std::lock_guard lock(mutex_);
    const Exchange& exchange = *piece->exchange;
    // A peer that has all of this turn may send what belongs to the next one while its piece of
    // this turn still lands here.
    is_late = header.step <= exchange.ended || header.step == piece->arrived ||
              (piece->is_landing && header.step == exchange.turn);
    // What is enqueued copies from pinned memory in each turn; the device's is needed in between.
    has_place = exchange.is_under_way() ? header.step == exchange.turn
                                        : !options_.is_direct && header.step == exchange.turn + 1;
  }
  if (is_late) {
    fail(fmt::format("rank {} sent piece {} of transfer {} of bucket {} once more", source.value(),
                     header.slice, header.transfer, header.bucket));
  } else if (has_place) {
    place(*piece, header.step, payload);
  } else if (const auto problem = early_.keep(source, header, payload)) {
    fail(*problem);
  }
}

std::optional<Landing> HostMessages::on_landing(Rank source, const SliceHeader& header) {
  if (header.plan != options_.plan || header.epoch != options_.epoch) {
    return std::nullopt;
  }
  Piece* piece = expected(source, header, header.bytes);
  if (piece == nullptr) {
    return std::nullopt;
  }
  Exchange& exchange = *piece->exchange;
  const std::lock_guard lock(mutex_);
  if (failure_ || !exchange.is_under_way() || header.step != exchange.turn ||
      piece->arrived == exchange.turn || piece->is_landing) {
    return std::nullopt;  // on_receive() sees to it
  }
  piece->is_landing = true;
  ++meeting_->direct;
  return Landing{.memory = exchange.on_device(exchange.places.front(), *piece),
                 .done = [meeting = meeting_, kept = exchange.shared_from_this(), piece,
                          turn = exchange.turn](bool has_arrived) {
                   const std::lock_guard done_lock(meeting->mutex);
                   --meeting->direct;
                   piece->is_landing = false;
                   piece->arrived = has_arrived ? turn : piece->arrived;
                   meeting->changed.notify_all();
                 }};
}

/// Copies a piece to where the stream, or what comes after it, looks for it.
void HostMessages::place(Piece& piece, std::uint32_t turn, std::span<const std::byte> payload) {
  Exchange& exchange = *piece.exchange;
  std::byte* to = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      return;  // nobody waits for it, and the device's memory may be somebody else's
    }
    to = options_.is_direct ? exchange.on_device(exchange.places.front(), piece).data()
                            : exchange.memory.data() + piece.staged;
    piece.is_landing = true;
  }
  const auto end = [&](bool has_arrived) {
    const std::lock_guard lock(mutex_);
    piece.is_landing = false;
    piece.arrived = has_arrived ? turn : piece.arrived;
    changed_.notify_all();
  };
  if (!options_.is_direct) {
    std::memcpy(to, payload.data(), payload.size());
    end(true);
    return;
  }
  try {
    copy(to, payload.data(), payload.size(), cudaMemcpyHostToDevice, copies_->get());
    copies_->synchronize();
  } catch (const CudaError&) {
    end(false);
    throw;
  }
  end(true);
}

void HostMessages::on_peer_error(Rank peer, const std::string& reason) {
  lost_[peer] = fmt::format("rank {} cannot be reached: {}", peer.value(), reason);
  for (const auto& [operation, exchange] : exchanges_) {
    require_peers(*exchange);
  }
}

/// Fails where an exchange that has begun still needs a peer that is lost. What that one had sent
/// before may be here without having its place yet.
void HostMessages::require_peers(const Exchange& exchange) {
  std::optional<std::string> reason;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [peer, why] : lost_) {
      const auto unsent = exchange.unsent.find(peer);
      const bool is_needed =
          (unsent != exchange.unsent.end() && unsent->second != 0) ||
          (exchange.is_under_way() &&
           std::any_of(exchange.receives.begin(), exchange.receives.end(), [&](const Piece& p) {
             const ExchangeOperation::Message& message = exchange.messages[p.message];
             const bool is_here = p.arrived == exchange.turn || p.is_landing ||
                                  early_.has(exchange.bucket.value(), message.transfer.value(),
                                             exchange.turn, p.number);
             return message.peer == peer && !is_here;
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
