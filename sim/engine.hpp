// The interpreter of plans: devices, streams, channels and transfers over a network model.
//
// Everything that takes time is an Activity. An activity starts while the end of another one is
// handled (or at time 0), and remembers it as its cause: the chain of causes back from the last
// activity is the critical path, without gaps by construction.
//
// Per rank there are three streams, each in order: compute (forward, backward, optimiser), codec
// (encode, decode) and reduce (additions). A (src, dst) pair is a channel: one slice at a time
// occupies it for its message overhead and its bytes; the latency of the route follows and occupies
// nothing. Where a rank has a processor (a shared link), stream work and overheads are flows over
// that link, capped at one core.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "plan/cost_model.hpp"
#include "sim/event_queue.hpp"
#include "sim/graph_index.hpp"
#include "sim/network_model.hpp"
#include "sim/simulator.hpp"

namespace rackrail::sim {

enum class ActivityKind : std::uint8_t {
  kForward,
  kBackward,
  kOptimizer,
  kEncode,
  kOverhead,
  kWire,
  kLatency,
  kDecode,
  kReduce,
};

inline constexpr std::uint32_t kNoActivity = UINT32_MAX;

struct Activity {
  ActivityKind kind = ActivityKind::kForward;
  Rank rank;              ///< whose device; the sender of a message
  std::uint32_t run = 0;  ///< collective it belongs to
  std::uint32_t transfer = 0;
  std::uint32_t slice = 0;  ///< of compute: index in the rank's program
  std::uint32_t cause = kNoActivity;
  Time start = 0;
  Time end = 0;
};

/// Compute work of one rank in one step: pieces in order; a piece may end with a bucket ready.
struct ComputePiece {
  ActivityKind kind = ActivityKind::kForward;
  Duration duration;
  std::vector<std::uint32_t> ready;  ///< runs whose local data is ready when the piece ends
};

class Engine {
 public:
  Engine(const topology::Topology& topology, const SimulationOptions& options);
  ~Engine();

  /// A collective; returns its number. `order`: runs of a lower number leave first.
  std::uint32_t add_run(std::shared_ptr<const GraphIndex> index, std::string name);
  /// Appends a step to a rank's program: after it, the rank waits for all runs of the step and then
  /// does `optimizer`.
  void add_step(Rank rank, std::vector<ComputePiece> pieces, std::vector<std::uint32_t> runs,
                Duration optimizer);
  /// Runs to the end. Throws SimulationError when something waits for what can never come.
  void run();

  const std::vector<Activity>& activities() const { return activities_; }
  /// Start and end of a rank's step.
  struct StepTimes {
    Time start = 0;
    Time end = 0;
    Time compute = 0;  ///< sum of its compute pieces as they ran
  };
  const std::vector<StepTimes>& steps_of(Rank rank) const;
  Time run_ready(std::uint32_t run) const;
  Time run_done(std::uint32_t run) const;
  std::string describe(const Activity& activity) const;
  std::string track(const Activity& activity) const;
  std::vector<Bytes> link_bytes(std::uint32_t first_run, std::uint32_t end_run) const;
  std::uint64_t events() const { return handled_; }
  std::uint64_t flows() const;

 private:
  struct RankState;
  struct Run;
  struct PhysicalChannel;
  struct Stream;

  std::uint32_t begin(ActivityKind kind, Rank rank, std::uint32_t run, std::uint32_t transfer,
                      std::uint32_t slice);
  void spend(std::uint32_t activity, Duration duration);
  void finish(std::uint32_t activity);
  void push_stream(Stream& stream, Rank rank, ActivityKind kind, std::uint32_t run,
                   std::uint32_t transfer, std::uint32_t slice, Duration duration);
  void next_in_stream(Stream& stream, Rank rank);
  void next_compute(Rank rank);
  void data_ready(std::uint32_t run, Rank rank);
  void slice_unblocked(std::uint32_t run, std::uint32_t transfer, std::uint32_t slice);
  void try_send(std::uint32_t channel);
  void arrived(std::uint32_t run, std::uint32_t transfer, std::uint32_t slice);
  void signal(std::uint32_t run, std::uint32_t transfer, std::uint32_t slice, bool at_source);
  void free_additions(std::uint32_t run, std::uint32_t transfer, std::uint32_t slice,
                      bool whole_done);
  void count_down(std::uint32_t run, Rank rank);
  Duration codec_time(Rank rank, const plan::Codec& codec, std::int64_t elements,
                      bool encode) const;
  [[noreturn]] void fail_stuck() const;

  const topology::Topology& topology_;
  EventQueue queue_;
  std::unique_ptr<NetworkModel> network_;
  std::vector<RankState> ranks_;
  std::vector<Run> runs_;
  std::vector<PhysicalChannel> channels_;
  std::unordered_map<std::uint64_t, std::uint32_t> channel_ids_;
  std::vector<Activity> activities_;
  std::uint32_t current_ = kNoActivity;
  Time now_ = 0;
  std::uint64_t handled_ = 0;
};

}  // namespace rackrail::sim
