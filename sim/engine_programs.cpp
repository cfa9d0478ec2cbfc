// Programs of ranks: steps that are made when they are needed, and what is dropped when it is done.
#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/engine.hpp"
#include "sim/engine_state.hpp"

namespace rackrail::sim {

void Engine::add_step(Rank rank, std::vector<ComputePiece> pieces, std::vector<std::uint32_t> runs,
                      Duration optimizer) {
  RankState& state = ranks_[rank.index()];
  const std::size_t number = state.first_step + state.steps.size();
  for (const std::uint32_t run : runs) {
    Run& of_step = runs_[run];
    of_step.step = static_cast<std::uint32_t>(number);
    of_step.program = state.program;
    if (of_step.open[rank.index()] > 0) {
      ++unfinished_;
      kept_open_ += of_step.is_kept && of_step.open_ranks == 0 ? 1 : 0;
      ++of_step.open_ranks;
    }
  }
  if (!state.program) {
    unfinished_ += number == 0 ? 1 : 0;
    ++state.step_count;
  }
  RankState::Step& step = state.steps.emplace_back();
  step.pieces = std::move(pieces);
  step.runs = std::move(runs);
  step.optimizer = optimizer;
}

std::uint32_t Engine::add_program(std::span<const Rank> ranks, std::size_t steps,
                                  std::uint64_t slice_ends,
                                  std::function<void(std::size_t step)> make) {
  const auto number = static_cast<std::uint32_t>(programs_.size());
  programs_.push_back({std::move(make), {}, 0});
  for (const Rank rank : ranks) {
    ranks_[rank.index()].program = number;
    ranks_[rank.index()].step_count = steps;
  }
  unfinished_ += steps > 0 ? ranks.size() : 0;
  slice_ends_ += slice_ends;
  return number;
}

void Engine::keep(std::span<const std::uint32_t> runs) {
  for (const std::uint32_t run : runs) {
    runs_[run].is_kept = true;
    kept_.push_back(run);
  }
}

void Engine::start_at(Rank rank, Duration start) { ranks_[rank.index()].start = start; }

const Engine::StepTimes& Engine::watched_times(Rank rank) const {
  return ranks_[rank.index()].watched;
}
Time Engine::end_of(Rank rank) const { return ranks_[rank.index()].end; }
const std::vector<StepSpan>& Engine::spans(std::uint32_t program) const {
  return programs_[program].spans;
}
Time Engine::program_done(std::uint32_t program) const { return programs_[program].done_at; }

void Engine::begin_step(Rank rank) {
  RankState& state = ranks_[rank.index()];
  RankState::Step& step = state.at(state.step);
  step.has_begun = true;
  step.times = {.start = now_, .end = now_};
  for (const std::uint32_t run : step.runs) {
    step.open_runs += runs_[run].open[rank.index()] > 0 ? 1 : 0;
  }
  if (state.step >= record_from_) {
    drops_activities_ = false;
  }
  if (watch_.from < 0 && state.step >= watch_.first_step) {
    watch_.from = now_;
  }
  if (state.program && programs_[*state.program].spans.size() == state.step) {
    programs_[*state.program].spans.push_back({Duration(now_), Duration(now_), Duration()});
    drop_old_activities();
  }
}

void Engine::end_step(RankState& rank, const Task& task) {
  StepTimes& times = rank.at(rank.step).times;
  times.end = now_;
  times.last_activity = task.activity;
  rank.end = now_;
  if (rank.step == watch_.first_step) {
    rank.watched = times;
  }
  if (rank.program) {
    Program& program = programs_[*rank.program];
    StepSpan& span = program.spans[rank.step];
    span.end = Duration(now_);
    span.waited_for_data = std::max(span.waited_for_data, Duration(times.waited_for_data));
    program.done_at = now_;
  }
  ++rank.step;
  rank.piece = 0;
  const bool ends_program = rank.step == rank.step_count;
  unfinished_ -= ends_program ? 1 : 0;
  const bool ends_watched =
      rank.step == watch_.last_step + 1 || (ends_program && rank.step <= watch_.last_step);
  if (ends_watched && --watch_.open == 0) {
    watch_.to = now_;
    stop_recording_if_done();
  }
  drop_steps(rank);
}

// Steps that have ended and whose gradients are there.
void Engine::drop_steps(RankState& rank) {
  while (rank.first_step < rank.step && rank.steps.front().open_runs == 0) {
    rank.steps.pop_front();
    ++rank.first_step;
  }
}

// A collective is done on one of its ranks.
void Engine::end_run_on(std::uint32_t number, Rank rank) {
  Run& run = runs_[number];
  run.done_at = std::max(run.done_at, now_);
  --unfinished_;
  RankState& state = ranks_[rank.index()];
  --state.at(run.step).open_runs;
  drop_steps(state);
  if (--run.open_ranks > 0 || !run.program) {
    return;
  }
  programs_[*run.program].done_at = now_;
  done_.push_back({number, first_activity_ + static_cast<std::uint32_t>(activities_.size())});
  if (run.is_kept && --kept_open_ == 0) {
    stop_recording_if_done();
  }
}

// Between events, when nobody looks at a collective.
void Engine::drop_done() {
  std::size_t dropped = 0;
  for (; dropped < done_.size(); ++dropped) {
    const DoneRun& done = done_[dropped];
    if (records_ &&
        (!drops_activities_ || static_cast<std::int32_t>(done.activities - first_activity_) > 0)) {
      break;  // activities are of it
    }
    drop_run(done.run);
  }
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(dropped));
}

void Engine::drop_run(std::uint32_t number) {
  const Run& run = runs_[number];
  for (const Run::LaneState& lane : run.lanes) {
    auto& competing = channels_[lane.channel].lanes;
    for (std::size_t i = competing.size(); i-- > 0;) {
      if (competing[i].first == number) {
        competing.erase(i);
      }
    }
  }
  if (run.is_kept || number < recorded_runs_) {
    runs_.keep(number);
    return;
  }
  dropped_bytes_.resize(topology_.link_count());
  add_bytes(run, dropped_bytes_);
  runs_.drop(number);
}

void Engine::record(Task& task) {
  if (first_activity_ + static_cast<std::uint32_t>(activities_.size()) == kNoActivity) {
    activities_.push_back({});  // nobody has this number
  }
  task.activity = first_activity_ + static_cast<std::uint32_t>(activities_.size());
  activities_.push_back({task, current_, now_, kNotEnded});
}

const Activity* Engine::activity(std::uint32_t number) const {
  const std::uint32_t place = number - first_activity_;
  return number != kNoActivity && place < activities_.size() ? &activities_[place] : nullptr;
}

void Engine::end_activity(const Task& task) {
  const std::uint32_t place = task.activity - first_activity_;
  if (place < activities_.size()) {
    activities_[place].end = now_;
  }
  current_ = records_ ? task.activity : kNoActivity;
}

// As long as no step has begun that is recorded: then only what has not ended can be of interest.
void Engine::drop_old_activities() {
  if (!drops_activities_) {
    return;
  }
  const auto open = std::find_if(activities_.begin(), activities_.end(),
                                 [](const Activity& one) { return one.end == kNotEnded; });
  if (2 * (open - activities_.begin()) > activities_.end() - open) {
    first_activity_ += static_cast<std::uint32_t>(open - activities_.begin());
    activities_.erase(activities_.begin(), open);
  }
}

void Engine::begin_recording() {
  for (const RankState& rank : ranks_) {
    watch_.open += rank.step_count > 0 ? 1 : 0;
    watch_.is_last = watch_.is_last && rank.step_count <= watch_.last_step + 1;
  }
  drops_activities_ = records_ && record_from_ > 0;
  record_rates();
}

// When the steps are over that are watched, and there are more, and what is kept of them is done.
void Engine::stop_recording_if_done() {
  if (records_ && watch_.is_wanted && !watch_.is_last && watch_.open == 0 && kept_open_ == 0) {
    records_ = false;
    current_ = kNoActivity;
    recorded_until_ = now_;
    recorded_runs_ = runs_.end();
  }
}

}  // namespace rackrail::sim
