// The interpreter of plans: devices, streams, channels and transfers over a network model.
//
// Everything that takes time is a Task; a task starts while the end of another one is handled (or
// at time 0). Per rank there are six streams: compute (forward, backward, optimiser), codec
// (encode, decode), reduce (additions), messages: the overheads of what it receives, and of what
// it sends to groups, which one core or NIC handles one after the other (LogP: Culler et al., PPoPP
// 1993), and two of copies, to and from host memory (engine_staging.cpp). Each route of a
// (src, dst) pair is a channel: one slice at a time occupies it, from the beginning of its
// overhead, which does not wait for those of other channels, to the end of its bytes; the latency
// of the route follows and occupies nothing. Where a rank has a processor (a shared link), stream
// work and overheads are flows over that link, capped at one core; and what it sends over a route
// with a rate leaves as the route's pace lets it (plan/send_pace.hpp).
//
// Urgency. Whenever a channel or a stream but compute is free, the most urgent of what waits for it
// is next: a bucket that is needed earlier overtakes what others have not begun,
// slice by slice. Flows that are on the way share links fairly, whoever they belong to.
//
// A rank's program is its steps, one after the other; the gradients of a step must be there before
// it ends, or, with a staleness of s, before step + s ends. A loader may have to bring the data of
// a step before it begins.
//
// When asked to record, the engine keeps every task as an Activity that remembers which one it
// started at the end of, its cause: the chain of causes back from the last activity is the critical
// path, without gaps by construction. Otherwise memory is what waits and what moves, and for each
// slice two bytes.
//
// engine.cpp: ranks and streams, and the loop. engine_programs.cpp: steps that are made when they
// are needed, and dropped. engine_transfers.cpp: slices that leave. engine_arrivals.cpp: slices
// that arrive. engine_staging.cpp: their copies to and from host memory. engine_groups.cpp: slices
// that switches copy or add. engine_disturbances.cpp: what others do to the network.
// engine_report.cpp: words for people.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/cost_model.hpp"
#include "sim/delay_queue.hpp"
#include "sim/graph_index.hpp"
#include "sim/network_model.hpp"
#include "sim/numbered.hpp"
#include "sim/simulator.hpp"
#include "sim/urgency_queue.hpp"
#include "sim/work_left.hpp"

namespace rackrail::sim {

enum class TaskKind : std::uint8_t {
  kStart,  ///< of a program that begins later than the simulation
  kLoad,   ///< of one batch of data
  kForward,
  kBackward,
  kOptimizer,
  kEncode,
  kCopyOut,  ///< from the device to its host's memory
  kPaced,    ///< a slice is ready, and waits for the rate of its route
  kOverhead,
  kWire,
  kLatency,
  kReceive,
  kCopyIn,  ///< from the host's memory to the device
  kDecode,
  kReduce,
  kCapacityChange,  ///< this and the next are nobody's work; `slice` says which of their list
  kBackground,
};

/// "forward", "wire", …: as in PathPiece::kind.
std::string_view name_of(TaskKind kind);

inline constexpr std::uint32_t kNoActivity = UINT32_MAX;
inline constexpr Time kNotEnded = -1;

struct Task {
  TaskKind kind = TaskKind::kForward;
  Rank rank;              ///< whose device; the sender of a message
  std::uint32_t run = 0;  ///< collective it belongs to; of compute: the step
  Place place;
  std::uint32_t slice = 0;  ///< of compute: index in the rank's program
  std::uint32_t activity = kNoActivity;
};

inline bool is_of_plan(const Task& task) { return task.kind < TaskKind::kCapacityChange; }
inline bool is_copy(const Task& task) {
  return task.kind == TaskKind::kCopyOut || task.kind == TaskKind::kCopyIn;
}

struct Activity {
  Task task;
  std::uint32_t cause = kNoActivity;
  Time start = 0;
  Time end = 0;  ///< kNotEnded before it has
};

/// Compute work of one rank in one step: pieces in order; a piece may end with a bucket ready.
struct ComputePiece {
  TaskKind kind = TaskKind::kForward;
  Duration duration;
  std::vector<std::uint32_t> ready;  ///< runs whose local data is ready when the piece ends
};

/// By link, bytes that it carried in some time.
struct Carried {
  std::vector<double> plan;  ///< empty: not counted; below 0: of a link whose rates nobody records
  std::vector<double> others;
};

class Engine {
 public:
  Engine(const topology::Topology& topology, const SimulationOptions& options);
  ~Engine();

  /// A collective; returns its number. Where several compete for a channel or a stream, slices of
  /// the most urgent go first; of equally urgent ones those of the lower owner, then number, go
  /// first over a channel, and those that came first through a stream.
  /// With an `owner`, only this rank waits for it; the data of all others is ready from the start.
  std::uint32_t add_run(std::shared_ptr<const GraphIndex> index, std::string name,
                        Urgency urgency = 0, std::optional<Rank> owner = std::nullopt);
  /// Appends a step to a rank's program: after its pieces, the rank waits for all runs of the step
  /// and then does `optimizer`.
  void add_step(Rank rank, std::vector<ComputePiece> pieces, std::vector<std::uint32_t> runs,
                Duration optimizer);
  /// Steps of these ranks, which must have none yet, made when they are needed. When the first of
  /// the ranks reaches a step, `make` is called with its number. It adds the step's collectives
  /// and, for each of the ranks, the step. Finished steps are dropped, except for what keep() and
  /// watch() ask for; so memory does not grow with the number of steps. `slice_ends` are those of
  /// all collectives of all steps (GraphIndex::slices_at), for the progress. Returns the number of
  /// the program.
  std::uint32_t add_program(std::span<const Rank> ranks, std::size_t steps,
                            std::uint64_t slice_ends, std::function<void(std::size_t step)> make);
  /// Is called with each collective of a program that is done; its times are known until then.
  void when_done(std::function<void(std::uint32_t run)> done) { when_done_ = std::move(done); }
  /// Collectives that were just made are not dropped.
  void keep(std::span<const std::uint32_t> runs);
  /// Those, in the order in which they were made.
  const std::vector<std::uint32_t>& kept() const { return kept_; }
  /// Activities before this step need not be recorded: the critical path and the flows of no step
  /// before it are asked for. Later steps than those that are watched are not either, once what is
  /// kept is done.
  void record_from(std::size_t step) { record_from_ = step; }
  /// The rank's first step begins then, not at 0; a rank that receives from it must not begin
  /// later.
  void start_at(Rank rank, Duration start);
  /// Runs to the end. Throws SimulationError when something waits for what can never come.
  void run();
  /// The same up to this time, or until `stop`, asked now and then if there is one, says so; false
  /// when something is left to be done then, which may be known before (work_left.hpp).
  bool run_until(Time limit, const std::function<bool()>& stop = {});

  /// Start and end of a rank's step.
  struct StepTimes {
    Time start = 0;
    Time end = 0;
    Time compute = 0;  ///< sum of its compute pieces as they ran
    Time waited_for_data = 0;
    std::uint32_t last_activity = kNoActivity;
  };
  /// Of the first step that watch() asks for.
  const StepTimes& watched_times(Rank rank) const;
  /// Of a rank's last step.
  Time end_of(Rank rank) const;
  /// Each step of a program, from the first rank that starts to the last that ends.
  const std::vector<StepSpan>& spans(std::uint32_t program) const;
  /// When the last of a program's steps has ended and its last collective is done: with a
  /// staleness, that may be later.
  Time program_done(std::uint32_t program) const;
  Time run_ready(std::uint32_t run) const;
  Time run_done(std::uint32_t run) const;
  /// Of its last addition; 0 if there was none.
  Time run_added(std::uint32_t run) const;
  /// Empty unless the options asked to record; see record_from(). Their numbers follow each other
  /// from first_activity() on, modulo 2³² and without kNoActivity.
  std::span<const Activity> activities() const { return activities_; }
  std::uint32_t first_activity() const { return first_activity_; }
  /// Null for one that was not recorded, or before that.
  const Activity* activity(std::uint32_t number) const;
  /// Asks, before run(), what links carry from the first rank's start of step `first` to the last
  /// one's end of step `last`, or of its program where that is shorter: of others, and with
  /// `counts_plan` of the plan.
  void watch(std::size_t first, std::size_t last, bool counts_plan);
  /// The answer, after run().
  const Carried& carried() const { return carried_; }
  /// What links sent since that first step began, of the plan and of others. Empty unless the
  /// options asked to record flows, and for links whose rates nobody records (processors, where
  /// messages are packets).
  const std::vector<LinkPiece>& link_pieces() const { return link_pieces_; }
  struct Message {
    Bytes bytes;
    const RouteUse* route;  ///< as long as the engine
    Rank dst;
  };
  /// What a kWire task moves.
  Message message(const Task& task) const;
  std::string describe(const Task& task) const;
  std::string track(const Task& task) const;
  /// By link: what these collectives sent over it.
  std::vector<Bytes> link_bytes(std::span<const std::uint32_t> runs) const;
  /// The same for all that there were.
  std::vector<Bytes> link_bytes() const;
  /// The longest that a rank took in these collectives to copy to its host's memory, or from
  /// there; none where nothing is staged.
  std::optional<Duration> longest_copies(std::span<const std::uint32_t> runs) const;
  std::uint64_t events() const { return handled_; }
  std::uint64_t flows() const;
  std::vector<QueueUse> queues() const;

 private:
  /// Which time carried_ is of.
  struct Watch {
    std::size_t first_step = 0;
    std::size_t last_step = 0;
    bool is_wanted = false;
    bool counts_plan = false;
    Time from = -1;        ///< -1: it has not begun
    Time to = INT64_MAX;   ///< until it has ended
    std::size_t open = 0;  ///< ranks that have not come to its end
    bool is_last = true;   ///< no step comes after it
  };
  /// Steps of some ranks.
  struct Program {
    std::function<void(std::size_t)> make;
    std::vector<StepSpan> spans;
    Time done_at = 0;
  };
  /// A collective of a program that is done, and may be dropped when all activities before this one
  /// are.
  struct DoneRun {
    std::uint32_t run = 0;
    std::uint32_t activities = 0;
  };
  struct RankState;
  struct Run;
  struct Channel;
  struct Stream;

  void begin_step(Rank rank);
  void end_step(RankState& rank, const Task& task);
  void drop_steps(RankState& rank);
  void end_run_on(std::uint32_t number, Rank rank);
  void count_work();
  bool is_too_late(Time limit);
  void drop_done();
  void drop_run(std::uint32_t number);
  void drop_old_activities();
  void stop_recording_if_done();
  void add_bytes(const Run& run, std::vector<Bytes>& bytes) const;
  void begin(Task task, Duration duration);
  void record(Task& task);
  void end_activity(const Task& task);
  FlowTag new_tag();
  void finish(const Task& task);
  void take_network_events();

  void push_stream(Stream& stream, const Task& task, Duration duration, Duration wake);
  void next_in_stream(Stream& stream);
  void next_compute(Rank rank);
  void next_load(Rank rank);
  void start_program(Rank rank);
  void finish_compute(const Task& task);

  void data_ready(std::uint32_t run, Rank rank);
  void open_lane(std::uint32_t run, std::uint32_t lane);
  void slice_unblocked(std::uint32_t run, Place place, const Item& item, std::uint32_t slice);
  void encode(std::uint32_t run, Place place, const Item& item, std::uint32_t slice);
  std::uint32_t new_channel(std::uint32_t route);
  std::uint32_t channel_of(std::uint64_t pair, LaneKind kind, std::uint32_t route);
  void try_send(std::uint32_t channel);
  bool try_send_lane(std::uint32_t channel, std::uint32_t run, std::uint32_t lane);
  static bool is_encoded(const Run& run, const Item& item, std::uint32_t slice);
  bool may_send(const Run& run, std::uint32_t lane) const;
  static void advance(Run& run, std::uint32_t lane);
  bool try_send_group(std::uint32_t run, std::uint32_t group, std::uint32_t slice);
  void finish_group_wire(const Task& task, std::span<const Place> members);
  std::span<const Place> group_of(const Task& task) const;
  void finish_encode(const Task& task);
  static void prepare_staging(Run& run, const GraphIndex& index);
  static Place copied_by(const GraphIndex& index, Place place, const Item& item);
  static bool is_staged(const Run& run, Place place, const Item& item, std::uint32_t slice);
  void stage(std::uint32_t run, Place place, const Item& item, std::uint32_t slice);
  void finish_copy_out(const Task& task);
  void copy_in(std::uint32_t run, Place place, std::uint32_t slice);
  void finish_copy_in(const Task& task);
  Duration copy_time(Rank rank, Bandwidth rate, const GraphIndex& index, const Item& item,
                     std::uint32_t slice) const;
  void pause(std::uint32_t channel, const Task& task);
  void finish_pause(const Task& task);
  void finish_overhead(const Task& task);
  void received(std::uint32_t run, Place place, std::uint32_t slice);
  void send(Rank src, std::uint32_t run, Place place, std::uint32_t slice, const Item& item);
  void finish_wire(const Task& task);
  void delivered(const Task& task);
  void applied(const Task& task);
  void arrived(std::uint32_t run, Place place, std::uint32_t slice);
  void arrived(std::uint32_t run, Place place, std::uint32_t slice, Time since);
  void signal(std::uint32_t run, Place place, std::uint32_t slice, bool at_source);
  void met(std::uint32_t run, Place place, const Item& item, std::uint32_t slice);
  void free_additions(std::uint32_t run, Place place, std::uint32_t slice, bool whole_done);
  void count_down(std::uint32_t run, Rank rank);
  Duration codec_time(Rank rank, const GraphIndex& index, std::uint32_t codec,
                      std::int64_t elements, bool encode) const;
  void schedule_disturbances();
  void require_large_enough(const BackgroundTraffic& traffic,
                            const std::vector<LinkId>& route) const;
  double background_asked(LinkId link) const;
  void require_possible_together() const;
  [[noreturn]] void fail_overloaded(LinkId link, const std::string& expected) const;
  [[noreturn]] void fail_filled(std::uint32_t number) const;
  bool is_cut_for_good(std::uint32_t stream) const;
  void disturb(const Task& task);
  void send_background(std::uint32_t number);
  void background_left(std::uint32_t number);
  void begin_recording();
  void record_rates();
  void take_rates();
  void add_piece(const LinkPiece& piece);
  void add_up_pieces();
  std::vector<bool> plan_flows() const;
  bool is_held_for_good() const;
  void add_others_work(std::uint32_t stream);
  void require_end_in_sight() const;
  std::optional<HeldFlow> first_held() const;
  [[noreturn]] void fail_stuck() const;
  static std::optional<Place> waited_for(const Run& run, Place place);
  static std::string what_blocks(const Run& run, Place place);

  const topology::Topology& topology_;
  bool records_;
  std::size_t staleness_;
  std::optional<DataLoading> loading_;
  Disturbances disturbances_;
  topology::Distance distance_;  ///< of background traffic
  std::vector<std::vector<LinkId>> background_routes_;
  std::vector<std::uint32_t> background_under_way_;  ///< messages, by stream
  std::uint64_t background_since_ = 0;               ///< messages since the plan's last event
  double others_work_ = 0;  ///< in events: background messages that left since `others_from_`
  Time others_from_ = 0;
  std::int64_t packet_bytes_;   ///< 0: messages are fluids
  std::size_t own_queued_ = 0;  ///< tasks of the plan in queue_
  std::size_t unfinished_ = 0;  ///< programs of ranks, and collectives on ranks
  std::function<void(double)> progress_;
  std::function<void(std::uint32_t)> when_done_;
  bool records_flows_;
  bool has_packets_;
  std::uint64_t slice_ends_ = 0;       ///< of all runs: slices to send or to apply
  std::uint64_t ended_ = 0;            ///< of those
  double tolerance_;                   ///< of the network
  std::optional<WorkLeft> work_left_;  ///< where a limit may be found to be missed early
  std::uint64_t next_look_ = 0;        ///< at work_left_, in events
  DelayQueue<Task> queue_;
  std::unique_ptr<NetworkModel> network_;
  std::vector<FlowEvent> network_events_;
  std::vector<RatePiece> rate_pieces_;  ///< since the last events of the network
  Watch watch_;
  Carried carried_;  ///< of pieces that are not kept
  std::vector<LinkPiece> link_pieces_;
  std::vector<std::size_t> last_pieces_;  ///< twice by link: the last one of the plan, of others
  std::size_t pieces_before_adding_ = 0;
  std::vector<Task> flying_;  ///< tasks that are flows, by tag
  std::vector<std::uint32_t> free_tags_;
  std::vector<RankState> ranks_;
  std::vector<Program> programs_;
  Numbered<Run> runs_;
  std::vector<std::uint32_t> kept_;
  std::size_t kept_open_ = 0;         ///< of those: not done
  std::vector<DoneRun> done_;         ///< not yet dropped
  std::vector<Bytes> dropped_bytes_;  ///< by link, of collectives that were dropped
  std::vector<Channel> channels_;
  /// By LaneKind: the first channel of each (src, dst) pair.
  std::array<std::unordered_map<std::uint64_t, std::uint32_t>, 3> channel_ids_;
  /// The further ones of a pair, by kind and the number of their route.
  std::map<std::tuple<std::uint64_t, LaneKind, std::uint32_t>, std::uint32_t> further_channels_;
  std::vector<Dependent> scratch_;
  struct FreedAddition {
    std::uint32_t run;
    Place place;
    std::uint32_t slice;
    Time since;
  };
  std::vector<FreedAddition> freed_;  ///< whose turn it is, while the first of them is carried on
  std::vector<Activity> activities_;
  std::uint32_t first_activity_ = 0;
  std::size_t record_from_ = 0;
  bool drops_activities_ = false;  ///< that have ended: the step to record has not begun
  Time recorded_until_ = INT64_MAX;
  std::uint32_t recorded_runs_ = 0;  ///< from which number on no activity is of a collective
  std::uint32_t current_ = kNoActivity;
  Time now_ = 0;
  std::uint64_t handled_ = 0;
};

}  // namespace rackrail::sim
