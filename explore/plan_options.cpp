#include "explore/plan_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "explore/nearest.hpp"
#include "plan/codec.hpp"
#include "plan/limits.hpp"
#include "planner/algorithms/schedule_family.hpp"

namespace rackrail::explore {
namespace {

[[noreturn]] void refuse(const std::string& value, const std::string& expected) {
  throw ConfigError(ErrorContext{"", "", fmt::format("'{}'", value), expected});
}

template <typename Number>
Number number(const std::string& text, Number least, Number most, const char* what) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, value);
  // Written so that "nan" is refused too.
  if (error != std::errc{} || read != end || !(value >= least && value <= most)) {
    refuse(text, fmt::format("{} from {} to {}", what, least, most));
  }
  return value;
}

std::int64_t samples(const std::string& text) {
  return number<std::int64_t>(text, 1, plan::kMostSamples, "a whole number");
}

bool flag(const std::string& text) {
  if (text != "true" && text != "false") {
    refuse(text, "true or false");
  }
  return text == "true";
}

struct Option {
  std::string_view name;
  void (*read)(const std::string& text, PlanChoice& choice);
};

constexpr std::array kOptions{
    Option{"error_budget",
           [](const std::string& text, PlanChoice& choice) {
             // Other than on a command line, values of a range are plain numbers.
             choice.options.error_budget =
                 text.ends_with('%') ? parse_share_up_to(text, plan::kMostErrorBudget)
                                     : number<double>(text, 0, plan::kMostErrorBudget, "a number");
           }},
    Option{"schedule",
           [](const std::string& text, PlanChoice& choice) {
             planner::schedule_family(text);  // throws for an unknown name
             choice.options.schedule = text;
           }},
    Option{"codec", [](const std::string& text,
                       PlanChoice& choice) { choice.options.codec = plan::parse_codec(text); }},
    Option{"bucket_size",
           [](const std::string& text, PlanChoice& choice) {
             choice.options.bucket_size = parse_bytes(text);
           }},
    Option{"local_batch", [](const std::string& text,
                             PlanChoice& choice) { choice.options.local_batch = samples(text); }},
    Option{"max_global_batch",
           [](const std::string& text, PlanChoice& choice) {
             choice.options.max_global_batch = samples(text);
           }},
    Option{"batch_policy",
           [](const std::string& text, PlanChoice& choice) {
             choice.options.batch_policy = planner::parse_batch_policy(text);
           }},
    Option{"learning_rate_rule",
           [](const std::string& text, PlanChoice& choice) {
             choice.options.learning_rate_rule = planner::parse_learning_rate_rule(text);
           }},
    Option{"compress_outer_layers",
           [](const std::string& text, PlanChoice& choice) {
             choice.options.protect_outer_layers = !flag(text);
           }},
    Option{"search",
           [](const std::string& text, PlanChoice& choice) {
             choice.options.effort = planner::parse_search_effort(text);
           }},
    Option{"naive", [](const std::string& text, PlanChoice& choice) { choice.naive = flag(text); }},
};

}  // namespace

std::vector<std::string> plan_option_names() {
  std::vector<std::string> names;
  for (const Option& option : kOptions) {
    names.emplace_back(option.name);
  }
  return names;
}

PlanChoice read_plan_choice(const std::map<std::string, std::string>& options) {
  PlanChoice choice;
  choice.options.compare_baselines = false;
  choice.options.effort = planner::SearchEffort::kQuick;
  for (const auto& [name, text] : options) {
    const auto option = std::find_if(kOptions.begin(), kOptions.end(),
                                     [&name](const Option& o) { return o.name == name; });
    if (option == kOptions.end()) {
      const std::vector<std::string> known = plan_option_names();
      throw ConfigError(
          ErrorContext{"", "plan." + name, "no such option of a plan",
                       fmt::format("one like: {}", fmt::join(nearest(name, known), ", "))});
    }
    try {
      option->read(text, choice);
    } catch (const ConfigError& e) {
      throw ConfigError(ErrorContext{"", "plan." + name, e.context().found, e.context().expected});
    }
  }
  return choice;
}

}  // namespace rackrail::explore
