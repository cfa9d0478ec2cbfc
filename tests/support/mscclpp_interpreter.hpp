// Runs an execution plan of MSCCL++ on numbers: an interpreter of the JSON that knows nothing of
// the writer, nor of transfer graphs.
//
// Blocks and NICs take turns at random. Whether one access comes before another is told by vector
// clocks, not by the turn: a block's accesses since its last `nop` are known to nobody, a signal
// passes on what came before that `nop`, and what a wait learns counts after the next one. A NIC
// reads the source of a put at some time until the flush. Two accesses of one place of which one
// writes, and neither is known to come first, are a race. So is an access of a peer's buffer before
// it has told that it has begun, and one of which it does not know when it ends.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace rackrail::test {

class MscclppInterpreter {
 public:
  using Numbers = std::vector<std::int64_t>;

  /// `units` of 16 bytes to a chunk, each with one number. Throws std::runtime_error for what the
  /// executor would refuse: an id out of range, too many operations, channels without a partner.
  MscclppInterpreter(const std::string& json, int units, std::uint32_t seed);

  /// From the first number of its input on.
  void set_input(std::size_t rank, const Numbers& numbers);
  Numbers output(std::size_t rank);

  /// Empty when all ran, else what went wrong: a deadlock, a race, a signal that nobody awaits.
  std::string run();

 private:
  using Clock = std::vector<std::uint32_t>;  ///< by actor: what of it is known to be done

  /// Who accesses memory: a thread block, or the NIC for one channel.
  struct Actor {
    Clock known;
    std::uint32_t now = 0;  ///< number of the latest operation that accesses memory
  };
  struct Cell {
    std::int64_t value = 0;
    std::pair<std::size_t, std::uint32_t> writer;  ///< actor, number of its operation
    std::vector<std::pair<std::size_t, std::uint32_t>> readers;
  };
  struct Span {
    std::vector<Cell>* cells = nullptr;
    std::size_t begin = 0;
    std::size_t count = 0;
  };
  struct Request {  ///< of a NIC
    Span source;
    Span target;
    bool is_put = false;
    bool is_signal = false;
    Clock known;
  };
  struct Channel {
    std::size_t from = 0;
    std::size_t to = 0;
    std::string type;
    std::size_t actor = 0;  ///< of the NIC
    Channel* back = nullptr;
    std::deque<Request> requests;
    std::deque<Clock> signals;
  };
  struct Block {
    nlohmann::json operations;
    std::size_t actor = 0;
    Clock learned;  ///< counts after the next `nop`
    std::map<std::string, std::vector<Channel*>> channels;
    std::map<std::string, std::vector<std::pair<std::size_t, char>>> buffers;  ///< rank, type
    std::size_t next = 0;
    bool has_begun = false;    ///< the operation: it asked NICs, or came to a barrier
    std::uint64_t passes = 0;  ///< of that barrier
  };
  struct Semaphore {
    int value = 0;
    int at_begin = 0;
    Clock released;
  };
  struct Barrier {
    std::size_t arrived = 0;
    std::uint64_t passes = 0;
    Clock gathered;
    Clock opened;
  };
  struct Gpu {
    std::vector<Cell> input;
    std::vector<Cell> output;
    std::vector<Cell> scratch;
    int input_chunks = 0;
    int output_chunks = 0;
    int scratch_chunks = 0;
    std::map<std::string, std::vector<Channel*>> channels;
    std::vector<Block> blocks;
    std::vector<Semaphore> semaphores;
    std::map<int, Barrier> barriers;
  };

  /// Throws std::runtime_error with `what` otherwise.
  static void require(bool is_right, const std::string& what);
  void read_buffers(const nlohmann::json& gpu, Gpu& to) const;
  void read_channels(const nlohmann::json& gpus);
  void read_block(const nlohmann::json& block, const nlohmann::json& gpu, Gpu& to);
  std::size_t add_actor();
  void begin();
  bool is_quiet(const Gpu& gpu) const;

  Span span(std::size_t gpu, char type, int index, int count, const nlohmann::json& operation);
  std::vector<Span> places(std::size_t gpu, const Block& block, const nlohmann::json& operation,
                           const char* which);
  static std::vector<Channel*> channels_of(const Block& block, const nlohmann::json& operation);

  /// Whether anything has changed; so for the others.
  bool try_operation(std::size_t gpu, Block& block);
  bool try_barrier(Gpu& gpu, Block& block, const nlohmann::json& operation);
  bool try_semaphores(Gpu& gpu, Block& block, const nlohmann::json& operation, bool is_release);
  static bool try_wait(Block& block, const nlohmann::json& operation);
  void signal(const Block& block, const nlohmann::json& operation);
  bool try_port(std::size_t gpu, Block& block, const nlohmann::json& operation,
                const std::string& name);
  void move_data(std::size_t gpu, const Block& block, const nlohmann::json& operation,
                 const std::string& name);
  bool try_nic(Channel& channel);
  void synchronize(Block& block);
  std::string unfinished() const;

  static void learn(Clock& clock, const Clock& more);
  void copy(std::size_t actor, const Span& source, const Span& target);
  std::int64_t read(std::size_t actor, const Span& span, std::size_t i);
  void write(std::size_t actor, const Span& span, std::size_t i, std::int64_t value);
  void check_order(std::size_t actor, const std::pair<std::size_t, std::uint32_t>& earlier);

  std::string collective_;
  bool is_in_place_ = false;
  std::size_t units_;
  std::mt19937 random_;
  std::vector<Gpu> gpus_;
  std::deque<Channel> channels_;
  std::vector<Actor> actors_;
  std::string problem_;
};

/// Runs it in several orders on numbers of which each sum is another; the first problem, or what a
/// rank wrongly ends with, or nothing.
std::string mscclpp_problem(const std::string& json, int units);

}  // namespace rackrail::test
