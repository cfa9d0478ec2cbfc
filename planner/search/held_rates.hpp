// Rates for the routes of buckets that keep the network busy for long, and how programs that reduce
// one large buffer alone compare schedules: by prediction, and by what none knows of flows that
// share a link.
//
// The simulator's flows share a link without loss. TCP flows fill the queue in front of it until
// packets are dropped, and flows that meet there are seldom all under way at the same time. Senders
// that together send no more than the link carries build no queue. So every route gets a rate in
// proportion to what it carries (proportional_rates()), where the predicted cost is small: where
// all routes are busy all the time, as in pipelines of many rounds or slices, and many streams
// share the link that is busy longest.
//
// Longer messages are fewer, and predicted a little faster, but come in bursts, so shorter ones are
// preferred where they cost little. Where all others send to one rank at once, they fill the queue
// in a burst, and rates may cost more.
//
// Measurements: results/planner-notes.md (section 'Rates on routes').
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/units.hpp"
#include "plan/codec.hpp"
#include "plan/cost_model.hpp"
#include "plan/plan.hpp"
#include "plan/transfer_graph.hpp"
#include "plan/workload.hpp"
#include "planner/pipeline/collective_form.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// Shorter collectives fit into queues: at 500 Mbit/s 5 ms are 312 kB, and queues hold 500 kB.
inline constexpr Duration kLongForRates = 5_ms;
/// What rates may cost, over the time without; and where a link is crowded.
inline constexpr double kMostForRates = 1.01;
inline constexpr double kMostForSharedRates = 1.05;
/// The same for a schedule in which all others send to one rank at once, and are as many at least.
inline constexpr double kMostForRatesOfMany = 1.1;
inline constexpr std::size_t kManySenders = 4;
/// So many senders at least fill a queue between them.
inline constexpr std::size_t kSeveralSenders = 3;
/// Of kManySenders these fit into a queue of 500 kB.
inline constexpr Bytes kMostAtOnce = 96_KiB;
/// What messages that are no longer than that may cost, over longer ones.
inline constexpr double kMostForShortMessages = 1.005;

/// Whether for some rank all others, `fewest` at least, have messages that wait for nothing.
bool has_many_senders(const plan::TransferGraph& graph, std::size_t fewest = kManySenders);

/// Whether rates are worth their cost. Not where less than 16 bits of a value are sent: encoding
/// makes slices late, and a fixed rate cannot make up for it. Nor where ranks are heterogeneous:
/// there the prediction alone decides for or against rates.
bool gains_from_rates(const plan::TransferGraph& graph, const topology::Topology& topology);

/// Whether kManySenders streams or more meet at one of the links that are busy longest: a stream is
/// what a rank sends over it, or what all send that another such link holds back before.
bool is_crowded(const plan::TransferGraph& graph, const topology::Topology& topology);

/// `time` of a collective by this graph, in messages of `elements`, as it is compared with others,
/// if it is kLongForRates at least: longer by kMostForShortMessages where messages are longer than
/// kMostAtOnce, which are sent in one go; by kMostForRates where all others, kSeveralSenders at
/// least, send to one rank at once, without rates; and, where rates may help, by
/// kMostForSharedRates except with rates on crowded links in messages that are not longer.
Duration judged_by_rates(Duration time, const plan::TransferGraph& graph, std::int64_t elements,
                         const topology::Topology& topology);

/// Whether this bucket of the plan is sent in messages no longer than kMostAtOnce.
bool has_short_messages(const plan::Plan& plan, const plan::Bucket& bucket);

/// The same graph, with a rate for every route that carries something.
plan::TransferGraph with_proportional_rates(const plan::TransferGraph& graph,
                                            const topology::Topology& topology);

enum class HeldSchedules : std::uint8_t { kAll, kOfManySenders };

/// Gives rates to the routes of buckets whose schedules have none and that take kLongForRates at
/// least: schedule by schedule, where the step takes at most kMostForRates of its time with them
/// all, kMostForSharedRates where a link is crowded and messages are not longer than kMostAtOnce,
/// or kMostForRatesOfMany with those that have many senders. `plan` must have schedules, and a
/// predicted step time, which is updated (not its gap).
void hold_to_rates(plan::Plan& plan, const plan::Workload& workload,
                   const topology::Topology& topology, plan::CostModel& cost_model,
                   HeldSchedules which = HeldSchedules::kAll);

/// The fastest of a family's variants with its slices, for a buffer of `elements`, as judged by
/// judged_by_rates(), which also gives its time. All variants are in this codec. Messages are not
/// cut below 32 KiB as sent, unless variant and slices leave transfers as they are. Preconditions:
/// there are variants, all of `topology`, and `elements` is positive.
DividedCollective judged_division(const std::vector<CollectiveForm>& forms,
                                  const plan::Codec& codec, std::int64_t elements,
                                  plan::CostModel& cost_model, const topology::Topology& topology);

}  // namespace rackrail::planner
