package org.adon.pegasus;

import java.io.IOException;
import java.io.Writer;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** A workflow as the JSON that ADON reads; docs/planner-plugin.md describes it. */
final class RequestWriter {

    private RequestWriter() {}

    static void write(Work work, String config, double limitSeconds, Writer out)
            throws IOException {
        Json json = new Json(out);
        json.open('{').pair("adon", 1L).pair("workflow", work.name);
        json.pair("config", config).pair("limit_s", limitSeconds).pair("priorities", true);
        json.pair("data_configuration", work.dataConfiguration);
        json.pair("profiles", work.profiles).pair("submit_dir", work.submitDirectory);
        json.pair("cleanup", work.cleanup).pair("properties", work.properties);
        json.pair("output_sites", work.outputSites);
        json.pair("input_directories", work.inputDirectories);
        json.open("replica_files", '[');
        for (String[] file : work.replicaFiles) {
            json.open('{').pair("type", file[0]).pair("path", file[1]).close('}');
        }
        json.close(']').pair("replica_properties", work.replicaProperties);
        json.open("sites", '[');
        for (Map.Entry<String, Map<String, String>> site : work.sites.entrySet()) {
            json.open('{').pair("name", site.getKey()).pair("profiles", site.getValue());
            writeAll("tags", work.tags.get(site.getKey()), json);
            json.pair("staging_site", work.staging.get(site.getKey()));
            json.pair("scratch", work.scratch.get(site.getKey()));
            json.close('}');
        }
        json.close(']').open("transformations", '[');
        for (Work.Transformation program : work.transformations) {
            List<String> able = program.sites;
            json.open('{').pair("name", program.name);
            json.pair("sites", able == null ? Collections.<String>emptyList() : able);
            json.pair("runtimes", program.runtimes);
            writeAll("profiles", program.profiles, json);
            json.close('}');
        }
        json.close(']').open("files", '[');
        for (Data file : work.files) {
            write(file, json);
        }
        json.close(']').open("jobs", '[');
        for (Task task : work.tasks) {
            write(task, work, json);
        }
        json.close(']').close('}');
        out.write('\n');
        out.flush();
    }

    private static void writeAll(String key, Map<String, Map<String, String>> all, Json json)
            throws IOException {
        if (all != null && !all.isEmpty()) {
            json.open(key, '{');
            for (Map.Entry<String, Map<String, String>> entry : all.entrySet()) {
                json.pair(entry.getKey(), entry.getValue());
            }
            json.close('}');
        }
    }

    private static void write(Data file, Json json) throws IOException {
        json.open('{').pair("lfn", file.lfn);
        if (file.size >= 0) {
            json.pair("size", file.size);
        }
        if (file.wanted) {
            json.pair("wanted", true);
        }
        if (file.checksum) {
            json.pair("checksum", true);
        }
        if (file.bypass && !file.produced) {
            json.pair("bypass", true);
        }
        if (!file.places.isEmpty()) {
            json.open("places", '[');
            for (String[] place : file.places) {
                json.open('[').item(place[0]).item(place[1]).close(']');
            }
            json.close(']');
        }
        json.close('}');
    }

    private static void write(Task task, Work work, Json json) throws IOException {
        json.open('{').pair("id", task.id);
        if (!"job".equals(task.kind)) {
            json.pair("kind", task.kind);
        }
        json.pair("transformation", (long) task.transformation);
        if (task.fixed) {
            json.pair("site", task.sites.get(0));
        } else if (task.sites != work.transformations.get(task.transformation).sites) {
            json.pair("sites", task.sites);
        }
        json.pair("group", task.group).pair("cluster", task.cluster);
        json.pair("runtime", task.runtime).pair("cores", task.cores);
        if (!task.profiles.isEmpty()) {
            json.pair("profiles", task.profiles);
        }
        json.pair("reads", task.reads).pair("writes", task.writes).pair("after", task.parents);
        json.close('}');
    }
}
