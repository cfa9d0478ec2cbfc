#include "sim/layout_turns.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace rackrail::sim {

namespace {

bool are_alike(const topology::Link& a, const topology::Link& b) {
  return a.bandwidth == b.bandwidth && a.latency == b.latency && a.overhead == b.overhead &&
         a.receive_overhead == b.receive_overhead && a.flow_bandwidth == b.flow_bandwidth &&
         a.burst == b.burst;
}

/// The lanes of each pair of ranks. A turn takes the first of a pair to the first of another, and
/// so on: where it does not, the routes tell, and the turn is taken for none.
class LaneNumbers {
 public:
  explicit LaneNumbers(const GraphLayout& layout) {
    for (std::uint32_t lane = 0; lane < layout.lanes.size(); ++lane) {
      const auto pair = key(layout.lanes[lane].src, layout.lanes[lane].dst);
      const auto [first, is_new] = first_.emplace(pair, lane);
      if (is_new) {
        place_.push_back(0);
        continue;
      }
      auto& further = further_[pair];
      further.push_back(lane);
      place_.push_back(static_cast<std::uint32_t>(further.size()));
    }
  }
  /// That of src and dst which has the place that `like` has among those of its pair.
  std::optional<std::uint32_t> of(Rank src, Rank dst, std::uint32_t like) const {
    const std::uint32_t place = place_[like];
    if (place == 0) {
      const auto found = first_.find(key(src, dst));
      return found == first_.end() ? std::nullopt : std::optional(found->second);
    }
    const auto found = further_.find(key(src, dst));
    return found == further_.end() || found->second.size() < place
               ? std::nullopt
               : std::optional(found->second[place - 1]);
  }

 private:
  static std::uint64_t key(Rank src, Rank dst) {
    return (std::uint64_t{src.value()} << 32U) | dst.value();
  }
  std::vector<std::uint32_t> place_;  ///< by lane, among those of its pair
  std::unordered_map<std::uint64_t, std::uint32_t> first_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> further_;
};

/// Whether a layout notices a turn.
class TurnCheck {
 public:
  TurnCheck(const ListedLayout& layout, const LaneNumbers& lanes, const RankTable& ranks,
            const topology::Topology& topology)
      : layout_(layout), lane_numbers_(lanes), ranks_(ranks), topology_(topology) {}

  /// Where the turn takes links; none if the layout notices it.
  std::optional<LinkImage> image(std::uint32_t by_groups, std::uint32_t by_members) {
    if (!has_equal_devices(by_groups, by_members) || !map_lanes(by_groups, by_members)) {
      return std::nullopt;
    }
    image_.assign(topology_.link_count(), kNoImage);
    origin_.assign(topology_.link_count(), kNoImage);
    route_image_.assign(layout_.routes.size(), kNoImage);
    for (std::uint32_t lane = 0; lane < layout_.lanes.size(); ++lane) {
      for (std::uint32_t i = 0; i < layout_.lanes[lane].count; ++i) {
        if (!takes({lane, i})) {
          return std::nullopt;
        }
      }
    }
    return std::move(image_);
  }

 private:
  bool has_equal_devices(std::uint32_t by_groups, std::uint32_t by_members) const {
    const auto device = [&](Rank rank) -> const std::string& {
      return topology_.node(topology_.node_of(rank)).device_class;
    };
    for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
      if (device(Rank(r)) != device(ranks_.turned(Rank(r), by_groups, by_members))) {
        return false;
      }
    }
    return true;
  }

  bool map_lanes(std::uint32_t by_groups, std::uint32_t by_members) {
    lane_image_.clear();
    for (std::uint32_t number = 0; number < layout_.lanes.size(); ++number) {
      const Lane& lane = layout_.lanes[number];
      const auto there = lane_numbers_.of(ranks_.turned(lane.src, by_groups, by_members),
                                          ranks_.turned(lane.dst, by_groups, by_members), number);
      if (!there.has_value() || layout_.lanes[*there].count != lane.count) {
        return false;
      }
      lane_image_.push_back(*there);
    }
    return true;
  }

  Place turned(Place place) const { return {lane_image_[place.lane], place.position}; }

  /// Whether a transfer is taken to one like it.
  bool takes(Place place) {
    const std::uint32_t from = layout_.number_of(place);
    const std::uint32_t to = layout_.number_of(turned(place));
    const Item& a = layout_.item(from);
    const Item& b = layout_.item(to);
    return a.op == b.op && a.codec == b.codec && a.encoding == b.encoding && a.waits == b.waits &&
           a.additions_before == b.additions_before &&
           (a.encoding == plan::EncodingKind::kOwn || turned(a.encoded_by) == b.encoded_by) &&
           layout_.weight(from) == layout_.weight(to) && takes_route(a.route, b.route) &&
           are_same(layout_.dependents(from, true), layout_.dependents(to, true)) &&
           are_same(layout_.dependents(from, false), layout_.dependents(to, false)) &&
           are_same(next_additions(from), next_additions(to));
  }

  std::span<const Dependent> next_additions(std::uint32_t number) const {
    return layout_.orders_additions ? layout_.next_additions(number) : std::span<const Dependent>();
  }

  bool takes_route(std::uint32_t from, std::uint32_t to) {
    if (route_image_[from] == to) {
      return true;
    }
    route_image_[from] = to;
    const RouteUse& a = layout_.routes[from];
    const RouteUse& b = layout_.routes[to];
    if (a.links.size() != b.links.size() || !a.shares.empty() || !b.shares.empty() ||
        a.overhead != b.overhead || a.receive_overhead != b.receive_overhead ||
        a.rate_cap != b.rate_cap || a.pace != b.pace || a.copy_out != b.copy_out ||
        a.copy_in != b.copy_in) {
      return false;
    }
    for (std::size_t hop = 0; hop < a.links.size(); ++hop) {
      if (!takes_link(a.links[hop], b.links[hop])) {
        return false;
      }
    }
    return true;
  }

  bool takes_link(LinkId from, LinkId to) {
    std::uint32_t& there = image_[from.index()];
    std::uint32_t& back = origin_[to.index()];
    if (there == kNoImage && back == kNoImage) {
      there = to.value();
      back = from.value();
      return are_alike(topology_.link(from), topology_.link(to));
    }
    return there == to.value() && back == from.value();
  }

  /// Whether these, turned, are those, in any order.
  bool are_same(std::span<const Dependent> these, std::span<const Dependent> those) {
    if (these.size() != those.size()) {
      return false;
    }
    const auto key = [](const Dependent& one) {
      return std::tuple(one.place.lane, one.place.position, one.whole);
    };
    const auto earlier = [&](const Dependent& a, const Dependent& b) { return key(a) < key(b); };
    turned_.clear();
    for (const Dependent& one : these) {
      turned_.push_back({turned(one.place), one.whole});
    }
    there_.assign(those.begin(), those.end());
    std::sort(turned_.begin(), turned_.end(), earlier);
    std::sort(there_.begin(), there_.end(), earlier);
    return std::equal(turned_.begin(), turned_.end(), there_.begin(),
                      [&](const Dependent& a, const Dependent& b) { return key(a) == key(b); });
  }

  const ListedLayout& layout_;
  const LaneNumbers& lane_numbers_;
  const RankTable& ranks_;
  const topology::Topology& topology_;
  std::vector<std::uint32_t> lane_image_;
  std::vector<std::uint32_t> route_image_;
  LinkImage image_;
  LinkImage origin_;
  std::vector<Dependent> turned_;
  std::vector<Dependent> there_;
};

/// Of a turn by a multiple.
LinkImage repeated(const LinkImage& image, std::uint32_t times) {
  LinkImage result(image.size(), kNoImage);
  for (std::uint32_t link = 0; link < image.size(); ++link) {
    if (image[link] != kNoImage) {
      std::uint32_t at = link;
      for (std::uint32_t i = 0; i < times; ++i) {
        at = image[at];
      }
      result[link] = at;
    }
  }
  return result;
}

/// Whether the images agree, one to one; `all` is both of them then.
bool add_image(LinkImage& all, LinkImage& origins, const LinkImage& image) {
  for (std::uint32_t link = 0; link < image.size(); ++link) {
    if (image[link] == kNoImage) {
      continue;
    }
    if (all[link] == kNoImage && origins[image[link]] == kNoImage) {
      all[link] = image[link];
      origins[image[link]] = link;
    } else if (all[link] != image[link] || origins[image[link]] != link) {
      return false;
    }
  }
  return true;
}

/// The image of all layouts of a turn by `step`, where `part` says which each has and of which
/// step; none where they differ.
template <typename Part>
std::optional<LinkImage> common_image(std::span<const LayoutTurns* const> layouts,
                                      std::uint32_t step, const Part& part) {
  LinkImage all(part(*layouts.front()).second.size(), kNoImage);
  LinkImage origins(all.size(), kNoImage);
  for (const LayoutTurns* const layout : layouts) {
    const auto& [own_step, image] = part(*layout);
    if (!add_image(all, origins, repeated(image, step / own_step))) {
      return std::nullopt;
    }
  }
  return all;
}

}  // namespace

std::optional<LayoutTurns> find_turns(const ListedLayout& layout, const RankTable& ranks,
                                      const topology::Topology& topology) {
  bool has_processors = false;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    has_processors = has_processors || topology.processor_of(Rank(r)).has_value();
  }
  if (has_processors || !layout.lane_kinds.empty() || layout.lanes.empty()) {
    return std::nullopt;
  }
  const LaneNumbers lanes(layout);
  TurnCheck check(layout, lanes, ranks, topology);
  const auto nowhere = check.image(0, 0);
  if (!nowhere.has_value()) {
    return std::nullopt;  // its messages go over several routes at once
  }
  LayoutTurns found{ranks.no_turns(), *nowhere, *nowhere};
  for (std::uint32_t step = 1; step < ranks.groups(); ++step) {
    if (ranks.groups() % step == 0) {
      if (auto image = check.image(step, 0)) {
        found.turns.groups = step;
        found.by_groups = *std::move(image);
        break;
      }
    }
  }
  for (std::uint32_t step = 1; step < ranks.members(); ++step) {
    if (ranks.members() % step == 0) {
      if (auto image = check.image(0, step)) {
        found.turns.members = step;
        found.by_members = *std::move(image);
        break;
      }
    }
  }
  return found.turns == ranks.no_turns() ? std::nullopt : std::optional(std::move(found));
}

std::optional<Fold> common_fold(std::span<const LayoutTurns* const> layouts,
                                const RankTable& ranks) {
  Fold fold;
  for (const LayoutTurns* const layout : layouts) {
    fold.turns.groups = std::lcm(fold.turns.groups, layout->turns.groups);
    fold.turns.members = std::lcm(fold.turns.members, layout->turns.members);
  }
  fold.copies = ranks.copies(fold.turns);
  if (fold.copies == 1) {
    return std::nullopt;
  }
  const auto by_groups = common_image(layouts, fold.turns.groups, [](const LayoutTurns& layout) {
    return std::pair<std::uint32_t, const LinkImage&>(layout.turns.groups, layout.by_groups);
  });
  const auto by_members = common_image(layouts, fold.turns.members, [](const LayoutTurns& layout) {
    return std::pair<std::uint32_t, const LinkImage&>(layout.turns.members, layout.by_members);
  });
  if (!by_groups.has_value() || !by_members.has_value()) {
    return std::nullopt;
  }
  fold.flows_on_one.assign(by_groups->size(), 1);
  for (std::size_t link = 0; link < by_groups->size(); ++link) {
    fold.first_link.emplace_back(link);
  }
  std::vector<bool> seen(by_groups->size(), false);
  std::vector<std::uint32_t> orbit;
  for (std::uint32_t link = 0; link < seen.size(); ++link) {
    if (seen[link] || (*by_groups)[link] == kNoImage) {
      continue;
    }
    orbit.assign(1, link);
    seen[link] = true;
    for (std::size_t i = 0; i < orbit.size(); ++i) {
      for (const LinkImage* const image : {&*by_groups, &*by_members}) {
        const std::uint32_t next = (*image)[orbit[i]];
        if (!seen[next]) {
          seen[next] = true;
          orbit.push_back(next);
        }
      }
    }
    for (const std::uint32_t one : orbit) {
      fold.first_link[one] = LinkId(link);
      fold.flows_on_one[one] = fold.copies / static_cast<std::uint32_t>(orbit.size());
    }
  }
  return fold;
}

/// Makes a folded layout.
class LayoutFolder {
 public:
  LayoutFolder(const ListedLayout& whole, const Fold& fold, const RankTable& ranks,
               const topology::Topology& topology)
      : whole_(whole),
        fold_(fold),
        ranks_(ranks),
        topology_(topology),
        routes_(whole.routes.size(), kNoImage) {}

  std::shared_ptr<const ListedLayout> make() {
    number_lanes();
    layout_->codecs = whole_.codecs;
    layout_->orders_additions = whole_.orders_additions;
    for (const std::uint32_t lane : kept_) {
      add_lane(lane);
    }
    const auto end = static_cast<std::uint32_t>(layout_->dependents_.size());
    layout_->dependents_begin_.push_back({end, end});
    for (const std::uint32_t number : whole_.awaited_whole_) {
      const std::uint32_t lane = whole_.lane_of_[number];
      const std::uint32_t folded = lane_image_[lane];
      if (kept_[folded] == lane) {
        layout_->awaited_whole_.push_back(layout_->begin_[folded] + number - whole_.begin_[lane]);
      }
    }
    layout_->sort_lanes_by_source(topology_.rank_count());
    return std::move(layout_);
  }

 private:
  // The lanes that first ranks send on, and which of them the others are folded onto.
  void number_lanes() {
    std::unordered_map<std::uint32_t, std::uint32_t> number_of;
    for (std::uint32_t lane = 0; lane < whole_.lanes.size(); ++lane) {
      const Lane& ends = whole_.lanes[lane];
      if (ranks_.first(ends.src, fold_.turns) == ends.src) {
        number_of.emplace(lane, static_cast<std::uint32_t>(kept_.size()));
        kept_.push_back(lane);
      }
    }
    const LaneNumbers lanes(whole_);
    for (std::uint32_t lane = 0; lane < whole_.lanes.size(); ++lane) {
      const Lane& ends = whole_.lanes[lane];
      lane_image_.push_back(
          number_of.at(*lanes.of(ranks_.first(ends.src, fold_.turns),
                                 ranks_.turned_along(ends.dst, ends.src, fold_.turns), lane)));
    }
  }

  void add_lane(std::uint32_t lane) {
    const Lane& ends = whole_.lanes[lane];
    layout_->begin_.push_back(layout_->size());
    layout_->lanes.push_back({ends.src, ranks_.first(ends.dst, fold_.turns), ends.count});
    layout_->receivers.push_back(ends.dst);
    for (std::uint32_t i = 0; i < ends.count; ++i) {
      add_transfer(whole_.begin_[lane] + i, static_cast<std::uint32_t>(layout_->lanes.size() - 1));
    }
  }

  void add_transfer(std::uint32_t number, std::uint32_t lane) {
    Item item = whole_.items_[number];
    item.route = route(item.route);
    if (item.encoding != plan::EncodingKind::kOwn) {
      item.encoded_by = folded(item.encoded_by);
    }
    layout_->items_.push_back(item);
    layout_->chunks_.push_back(whole_.chunks_[number]);
    layout_->weights_.push_back(whole_.weights_[number]);
    layout_->lane_of_.push_back(lane);
    layout_->originals_.push_back(whole_.originals_[number]);
    auto& dependents = layout_->dependents_;
    const auto begin = static_cast<std::uint32_t>(dependents.size());
    append(whole_.dependents(number, true), dependents);
    layout_->dependents_begin_.push_back({begin, static_cast<std::uint32_t>(dependents.size())});
    append(whole_.dependents(number, false), dependents);
    if (whole_.orders_additions) {
      append(whole_.next_additions_[number], layout_->next_additions_.emplace_back());
    }
  }

  void append(std::span<const Dependent> from, std::vector<Dependent>& to) const {
    for (const Dependent& one : from) {
      to.push_back({folded(one.place), one.whole});
    }
  }

  Place folded(Place place) const { return {lane_image_[place.lane], place.position}; }

  std::uint32_t route(std::uint32_t number) {
    std::uint32_t& there = routes_[number];
    if (there == kNoImage) {
      there = static_cast<std::uint32_t>(layout_->routes.size());
      layout_->routes.push_back(folded(whole_.routes[number]));
      layout_->route_numbers.push_back(route_number(whole_.routes[number]));
    }
    return there;
  }

  // Over the first link of each orbit, once, for all flows of the orbit that are on it.
  RouteUse folded(const RouteUse& whole) const {
    RouteUse use = whole;
    use.links.clear();
    for (const LinkId link : whole.links) {
      const LinkId first = fold_.first_link[link.index()];
      const auto flows = static_cast<double>(fold_.flows_on_one[link.index()]);
      const auto known = std::find(use.links.begin(), use.links.end(), first);
      if (known == use.links.end()) {
        use.links.push_back(first);
        use.shares.push_back(flows);
      } else {
        use.shares[static_cast<std::size_t>(known - use.links.begin())] += flows;
      }
    }
    const bool has_them_alone =
        std::all_of(use.shares.begin(), use.shares.end(), [](double share) { return share == 1; });
    if (has_them_alone && use.links.size() == whole.links.size()) {
      return {.links = std::move(use.links),
              .shares = {},
              .latency = {},
              .overhead = whole.overhead,
              .receive_overhead = whole.receive_overhead,
              .rate_cap = whole.rate_cap,
              .pace = whole.pace,
              .copy_out = whole.copy_out,
              .copy_in = whole.copy_in};
    }
    return use;
  }

  const ListedLayout& whole_;
  const Fold& fold_;
  const RankTable& ranks_;
  const topology::Topology& topology_;
  std::vector<std::uint32_t> kept_;        ///< lanes of the whole, by lane
  std::vector<std::uint32_t> lane_image_;  ///< by lane of the whole
  std::vector<std::uint32_t> routes_;      ///< by route of the whole: that of the folded one
  std::shared_ptr<ListedLayout> layout_{new ListedLayout};
};

std::shared_ptr<const ListedLayout> folded(const ListedLayout& layout, const Fold& fold,
                                           const RankTable& ranks,
                                           const topology::Topology& topology) {
  return LayoutFolder(layout, fold, ranks, topology).make();
}

}  // namespace rackrail::sim
