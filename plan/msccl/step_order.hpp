// The order of a program's steps: which send each receive meets, an order in which all steps can
// run, and which steps of a GPU are known to be done before another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/msccl/program.hpp"

namespace rackrail::plan::msccl {

struct StepPlace {
  std::uint32_t gpu = 0;
  std::uint32_t block = 0;
  std::uint32_t step = 0;
};

inline constexpr std::size_t kNoStep = SIZE_MAX;

/// Steps are numbered GPU by GPU, block by block.
class StepOrder {
 public:
  /// Throws ConfigError where a send meets no receive or one of another size, a connection has two
  /// blocks at one end, or steps wait for each other.
  StepOrder(const Program& program, const std::string& file);

  std::size_t size() const { return places_.size(); }
  const Step& step(std::size_t index) const;
  const StepPlace& place(std::size_t index) const { return places_[index]; }
  /// "gpu 3, tb 1, step 2".
  std::string name(std::size_t index) const;

  /// An order in which each step comes after those that it waits for.
  const std::vector<std::size_t>& runnable() const { return runnable_; }
  /// The receive that a send meets, and the send that a receive meets; kNoStep for other steps.
  std::size_t receiver_of(std::size_t index) const { return receiver_[index]; }
  std::size_t sender_of(std::size_t index) const { return sender_[index]; }
  /// The step before it in its block and the one of another block that it waits for, or kNoStep.
  std::size_t previous(std::size_t index) const;
  std::size_t wanted(std::size_t index) const;

  /// Whether `first`, of the same GPU, is known to be done before `second` begins, by the order of
  /// blocks and their waits.
  bool is_before(std::size_t first, std::size_t second) const;

 private:
  void number_steps();
  void match_messages();
  void order_steps();
  void set_clocks();
  std::size_t index_of(std::size_t gpu, std::size_t block, std::size_t step) const;

  const Program& program_;
  const std::string& file_;
  std::vector<StepPlace> places_;
  std::vector<std::vector<std::size_t>> first_;  ///< by GPU and block: number of its first step
  std::vector<std::size_t> receiver_;
  std::vector<std::size_t> sender_;
  std::vector<std::size_t> runnable_;
  std::vector<std::size_t> clock_begin_;
  /// Of each step, by block of its GPU: how many of the block's steps are done before it begins.
  std::vector<std::uint32_t> clocks_;
};

}  // namespace rackrail::plan::msccl
