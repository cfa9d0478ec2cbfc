#include "plan/empty_plan.hpp"

namespace rackrail::plan {

Plan empty_plan(const topology::Topology& cluster) {
  Plan plan;
  plan.cluster_name = cluster.name();
  plan.cluster_digest = cluster.digest();
  for (std::size_t r = 0; r < cluster.rank_count(); ++r) {
    plan.rank_names.push_back(cluster.node(cluster.node_of(Rank(r))).name);
  }
  plan.adapters = topology::adapters_of(cluster);
  plan.batch.local_batch.assign(cluster.rank_count(), 1);  // a plan has one, used or not
  return plan;
}

}  // namespace rackrail::plan
