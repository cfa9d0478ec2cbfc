#include "explore/document.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "explore/nearest.hpp"
#include "explore/scenario.hpp"
#include "plan/workload.hpp"
#include "topology/reader.hpp"

namespace rackrail::explore::document_test {
namespace {

const std::string kText =
    "name: \"a: b\"   # a comment\n"
    "racks:\n"
    "  - { hosts: 2, type: x }\n"
    "  - { hosts: 3 }\n"
    "network: { core: { bandwidth: 40 Gbit/s } }\n"
    "flags: [yes, \"10\", [7]]\n";

TEST_CASE("every single value has a path") {
  CHECK(field_paths(kText) == std::vector<std::string>{"name", "racks[0].hosts", "racks[0].type",
                                                       "racks[1].hosts", "network.core.bandwidth",
                                                       "flags[0]", "flags[1]", "flags[2][0]"});
}

TEST_CASE("a path leads to a value, a branch, a place for one, or nowhere") {
  for (const std::string& path : field_paths(kText)) {
    INFO(path);
    CHECK(find_field(kText, path) == FieldState::kThere);
  }
  CHECK(find_field(kText, "network.core") == FieldState::kBranch);
  CHECK(find_field(kText, "racks") == FieldState::kBranch);
  CHECK(find_field(kText, "racks[1]") == FieldState::kBranch);
  CHECK(find_field(kText, "racks[1].type") == FieldState::kAddable);
  CHECK(find_field(kText, "seed") == FieldState::kAddable);
  for (const char* path :
       {"racks[2].hosts", "racks[x].hosts", "racks[", "racks[]", "racks[0]hosts", "racks.hosts",
        "name.first", "network.spine.count", "network..core", "", ".", "network.", "flags[3]"}) {
    INFO(path);
    CHECK(find_field(kText, path) == FieldState::kAbsent);
  }
}

TEST_CASE("only the fields that are replaced change") {
  const std::string text = with_fields(kText, {{"racks[1].hosts", "7"}, {"racks[1].type", "y: z"}});
  CHECK(find_field(text, "racks[1].type") == FieldState::kThere);
  CHECK(with_fields(text, {{"racks[1].hosts", "3"}}) ==
        with_fields(kText, {{"racks[1].hosts", "3"}, {"racks[1].type", "y: z"}}));
  CHECK(with_fields(kText, {}) == kText);
  CHECK_THROWS_AS(with_fields(kText, {{"racks[2].hosts", "1"}}), ConfigError);
  CHECK_THROWS_AS(with_fields(kText, {{"network", "1"}}), ConfigError);
  CHECK_THROWS_AS(field_paths("a: [1, 2"), ConfigError);
}

// The digest of a topology covers all of it, so writing YAML again must not change any of it.
TEST_CASE("shipped clusters and workloads survive being written again") {
  for (const std::string& name : topology::shipped_clusters()) {
    INFO(name);
    const Source source = cluster_source(name);
    const auto again =
        topology::read_cluster_text(source.file, with_fields(source.text, {{"name", "other"}}));
    const auto back =
        topology::read_cluster_text(source.file, with_fields(source.text, {{"name", name}}));
    CHECK(again.topology.name() == "other");
    CHECK(back.topology.digest() == topology::read_cluster(name).topology.digest());
  }
  for (const std::string& name : plan::shipped_workloads(topology::configs_folder())) {
    INFO(name);
    const Source source = workload_source(name);
    const plan::Workload again =
        plan::read_workload_text(with_fields(source.text, {{"name", name}}), source.file);
    CHECK(plan::to_yaml(again) ==
          plan::to_yaml(plan::read_workload(name, topology::configs_folder())));
  }
}

TEST_CASE("edit distances") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("bandwdth", "bandwidth") == 1);
}

TEST_CASE("the nearest names come first, those that contain the wanted one before all") {
  const std::vector<std::string> known{"codec", "naive", "local_batch", "bucket_size"};
  CHECK(nearest("batch", known, 1) == std::vector<std::string>{"local_batch"});
  CHECK(nearest("codek", known, 1) == std::vector<std::string>{"codec"});
  CHECK(nearest("x", known, 9).size() == 4);
  CHECK(nearest("x", {}, 3).empty());
}

}  // namespace
}  // namespace rackrail::explore::document_test
