// Messages of device programs over a transport of the host, such as UCX, in pieces.
//
// Staged: through pinned memory, so that a piece is on the wire while the next is copied from the
// device. On the stream, an exchange is: for each piece that is sent, a copy to the host and a
// function of the host that hands the piece to a thread of this object; for each piece that is
// received, a function of the host that waits for it, and a copy to the device. So a stream waits
// for the network as it waits for a kernel, and what comes after needs to know nothing of it. The
// thread alone uses the transport.
//
// Direct: where the transport takes memory of the device (DeviceMessaging), it is given that, and
// there are no copies on the stream. On the wire both are the same, and each rank may do as it can.
//
// The driver may carry out the host's functions of all streams of a process one after the other,
// and those that wait here hold up the others. That is no deadlock as long as a process is one
// rank: all exchanges of a rank are on one stream, in the same order on every rank, and each sends
// before it waits, so what the first of the waiting functions waits for has been sent, or will be
// by a rank that waits for nothing. Ranks that are threads of one process on one device could wait
// for each other for ever.
//
// Exchanges are told apart by their transfer's number, their bucket and how often that bucket has
// been launched (its turn), which is the same everywhere. What comes too early goes to its place in
// pinned memory where the turn before has ended, and is kept otherwise, or where there is none
// (EarlyPieces, in bounded memory).
//
// Once a peer is lost that an exchange needs, all functions return at once, nothing is sent any
// more and what is copied is unspecified: check_health() says so. A send that is under way then may
// end after this object: it keeps the pinned memory that it reads. Direct ones read the device's
// memory; the end of this object waits some time for them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/nccl/device_messages.hpp"
#include "runtime/nccl/early_pieces.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime {

class HostMessages final : public DeviceMessages {
 public:
  struct Options {
    std::uint64_t plan = 0;  ///< SliceHeader::plan
    std::uint32_t epoch = 0;
    std::size_t piece_bytes = std::size_t{4} << 20;  ///< the same on all ranks
    bool is_direct = false;  ///< the transport is given memory of the device
    int device = 0;          ///< of the memory
  };

  /// Keeps a reference: the transport must be connected and is used by this object alone from now
  /// on. Throws RuntimeFailure for pieces of no bytes, and for direct ones over a transport that
  /// takes the host's memory only.
  HostMessages(Transport& transport, const Options& options);
  /// After the streams have ended what was enqueued, or after abort().
  ~HostMessages() override;

  void prepare(BucketId bucket, const DeviceProgram& program) override;
  void learn(std::span<std::byte> memory) override;
  void enqueue(BucketId bucket, const ExchangeOperation& exchange, std::span<std::byte> gradient,
               std::span<std::byte> scratch, cudaStream_t stream) override;
  void check_health() override;

  /// After the last prepare(): sees to the transport from now on, and not only from the first
  /// exchange on.
  void start();
  /// Lets streams go on that wait for messages; check_health() throws from now on. From any thread.
  void abort(const std::string& reason);

 private:
  struct Exchange;
  struct Piece;
  using Key = std::pair<std::uint32_t, std::uint32_t>;  ///< bucket and transfer
  /// Something for the thread to do: to look at what came early, or to send a piece.
  struct Task {
    Exchange* exchange = nullptr;
    const Piece* piece = nullptr;  ///< null: the exchange has begun
    std::uint32_t turn = 0;
  };

  // Called by streams.
  static void begin(void* exchange);
  static void post(void* piece);
  static void post_all(void* exchange);
  static void await(void* piece);
  static void await_all(void* exchange);
  static void end(void* exchange);

  void give(Task task);
  void run();
  bool may_end();
  void sleep();
  std::size_t take_tasks();
  void take_early(Exchange& exchange, std::uint32_t turn);
  void send(const Task& task);
  Piece* expected(Rank source, const SliceHeader& header, std::size_t bytes);
  void on_receive(Rank source, const SliceHeader& header, std::span<const std::byte> payload);
  std::optional<Landing> on_landing(Rank source, const SliceHeader& header);
  void place(Piece& piece, std::uint32_t turn, std::span<const std::byte> payload);
  void on_peer_error(Rank peer, const std::string& reason);
  void fail(const std::string& reason);
  void require_peers(const Exchange& exchange);

  Transport& transport_;
  const Options options_;
  std::map<const ExchangeOperation*, std::shared_ptr<Exchange>> exchanges_;
  std::map<Key, std::pair<Exchange*, std::size_t>> receives_;  ///< and the index of its first piece
  /// Memory that the transport knows, and its size.
  std::map<const std::byte*, std::size_t> learnt_;

  struct Meeting {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t direct = 0;  ///< sends and landings under way that use the device's memory
  };
  const std::shared_ptr<Meeting> meeting_ = std::make_shared<Meeting>();  ///< with sends under way
  std::mutex& mutex_ = meeting_->mutex;  ///< guards what follows, and what exchanges say is
  std::condition_variable& changed_ = meeting_->changed;
  std::deque<Task> tasks_;
  std::optional<std::string> failure_;
  bool is_stopping_ = false;

  EarlyPieces early_;                 ///< of the thread
  std::map<Rank, std::string> lost_;  ///< of the thread
  /// Of the thread, where messages are direct: for what came early.
  std::optional<CudaStream> copies_;
  std::optional<std::chrono::steady_clock::time_point> last_end_;  ///< of the thread
  std::thread thread_;
};

}  // namespace rackrail::runtime
