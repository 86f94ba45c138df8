// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.catalog.transformation;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

public abstract class Mapper {
    /** By name: what runs where. */
    public final Map<String, Map<String, TransformationCatalogEntry>> programs =
            new HashMap<String, Map<String, TransformationCatalogEntry>>();

    /** How often sites were asked for. */
    public int asked;

    public List getSiteList(String namespace, String name, String version, List sites) {
        asked++;
        List<Object> found = new ArrayList<Object>();
        for (Object site : sites) {
            if (program(namespace, name, version).containsKey(site)) {
                found.add(site);
            }
        }
        return found;
    }

    public List getTCList(String namespace, String name, String version, String site) {
        TransformationCatalogEntry found = program(namespace, name, version).get(site);
        return found == null ? null : Collections.singletonList(found);
    }

    private Map<String, TransformationCatalogEntry> program(
            String namespace, String name, String version) {
        Map<String, TransformationCatalogEntry> found =
                programs.get(namespace + "::" + name + ":" + version);
        if (found == null) {
            throw new RuntimeException("no entries for the transformation " + name);
        }
        return found;
    }
}
