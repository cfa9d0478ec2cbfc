// What else the machine does while something is measured on it.
#pragma once

#include <optional>
#include <string>

namespace rackrail {

/// Cores that are kept from this process and those that it started: by other programs, and by other
/// virtual machines of the same host ("steal"). From when this is made on.
class OtherLoad {
 public:
  /// From this share of all cores on, times that were measured meanwhile do not count.
  static constexpr double kMost = 0.1;

  OtherLoad();

  /// How many, on average. A process that was started counts as another until it was waited for. 0
  /// where the system does not say (Linux does).
  double cores() const;

 private:
  struct Times {  // in seconds
    double wall = 0;
    double busy = 0;  ///< of all cores, without interrupts, in which an emulated network works
    double own = 0;
  };
  static std::optional<Times> now();

  std::optional<Times> start_;
};

/// All cores of this machine.
double machine_cores();

/// Whether others took too much for times to count.
bool is_busy(double others);

/// "other programs took 0.8 of 2 cores"
std::string other_load_text(double others);

}  // namespace rackrail
