// One TCP stream between two namespaces, as fast as it goes.
#pragma once

#include <chrono>
#include <string>

#include "base/units.hpp"
#include "runtime/emulate/namespaces.hpp"

namespace rackrail::runtime::emulate {

/// Connected from the start. send_until and measure_until are for two threads at the same time.
class Stream {
 public:
  using Clock = std::chrono::steady_clock;

  /// From one namespace to the `address` of another. Throws RuntimeFailure.
  Stream(const NetworkNamespace& from, const NetworkNamespace& to, const std::string& address);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void send_until(Clock::time_point end) noexcept;
  /// Payload per second between the first arrival after `begin` and the last before `end`; zero
  /// where there were not two.
  Bandwidth measure_until(Clock::time_point begin, Clock::time_point end) noexcept;

 private:
  int sender_ = -1;
  int receiver_ = -1;
};

}  // namespace rackrail::runtime::emulate
