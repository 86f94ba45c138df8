package org.adon.pegasus;

import edu.isi.pegasus.planner.catalog.replica.ReplicaCatalogEntry;
import edu.isi.pegasus.planner.catalog.site.classes.FileServer;
import edu.isi.pegasus.planner.catalog.site.classes.SiteCatalogEntry;
import edu.isi.pegasus.planner.catalog.site.classes.SiteStore;
import edu.isi.pegasus.planner.catalog.transformation.Mapper;
import edu.isi.pegasus.planner.catalog.transformation.TransformationCatalogEntry;
import edu.isi.pegasus.planner.classes.ADag;
import edu.isi.pegasus.planner.classes.PegasusBag;
import edu.isi.pegasus.planner.classes.PlannerOptions;
import edu.isi.pegasus.planner.classes.Profile;
import edu.isi.pegasus.planner.classes.ReplicaLocation;
import edu.isi.pegasus.planner.common.PegasusProperties;

import java.io.File;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * What makes the answer better and is no condition for one: hints of the site catalog, where inputs
 * lie, run times, where results go. Each part stands alone, so that a Pegasus in which one is called
 * otherwise costs that part only.
 */
final class Catalogs {

    private static final String RUNTIME = "runtime";
    private static final String REPLICA = "pegasus.catalog.replica";
    private static final String ALL = "pegasus.catalog.*";
    private static final String[] DATABASE = {
        REPLICA, REPLICA + ".db.url", REPLICA + ".db.user", REPLICA + ".db.password",
        ALL + ".db.url", ALL + ".db.user", ALL + ".db.password",
    };

    /** What decides by which way files come to a job. */
    private static final String[] STAGING = {
        "pegasus.integrity.checking", "pegasus.transfer.bypass.input.staging",
    };

    private final Work work;
    private final PegasusBag bag;
    private final PegasusProperties properties;
    private final List<String> missing = new ArrayList<String>();

    private Catalogs(Work work, PegasusBag bag, PegasusProperties properties) {
        this.work = work;
        this.bag = bag;
        this.properties = properties;
    }

    /** Adds to {@code work} what can be had; returns what this Pegasus does not tell. */
    static List<String> read(
            Work work,
            ADag workflow,
            PegasusBag bag,
            PegasusProperties properties,
            SiteStore sites,
            Mapper mapper) {
        Catalogs catalogs = new Catalogs(work, bag, properties);
        work.dataConfiguration = properties.getProperty("pegasus." + Profiles.CONFIGURATION);
        for (String key : STAGING) {
            String value = properties.getProperty(key);
            if (value != null) {
                work.properties.put(key, value);
            }
        }
        catalogs.attempt("sites", () -> catalogs.sites(sites));
        catalogs.attempt("tags of sites", () -> catalogs.tags(sites));
        catalogs.attempt("staging sites", catalogs::stagingSites);
        catalogs.attempt("file servers", () -> catalogs.fileServers(sites));
        catalogs.attempt("profiles of transformations", () -> catalogs.programs(mapper));
        catalogs.attempt("priorities", catalogs::priorities);
        catalogs.attempt("output sites", catalogs::output);
        catalogs.attempt("the workflow's replicas", () -> catalogs.replicas(workflow));
        catalogs.attempt("replica files", catalogs::replicaFiles);
        return catalogs.missing;
    }

    private void attempt(String what, Runnable part) {
        try {
            part.run();
        } catch (LinkageError error) {
            missing.add(what);
        } catch (RuntimeException error) {
            missing.add(what + " (" + Words.line(error.toString()) + ")");
        }
    }

    private void sites(SiteStore store) {
        for (Iterator<?> it = store.entryIterator(); it.hasNext(); ) {
            SiteCatalogEntry site = (SiteCatalogEntry) it.next();
            work.sites.put(site.getSiteHandle(), profiles(site.getProfiles()));
        }
    }

    private static Map<String, String> profiles(
            edu.isi.pegasus.planner.catalog.classes.Profiles of) {
        Map<String, String> found = new TreeMap<String, String>();
        Collection<?> profiles = of == null ? null : of.getProfiles();
        for (Object item : profiles == null ? new ArrayList<Object>() : profiles) {
            Profile profile = (Profile) item;
            String key = profile.getProfileKey();
            if ("pegasus".equals(profile.getProfileNamespace())
                    && (key.startsWith("adon.") || key.equals(RUNTIME)
                            || key.equals(Profiles.TAG)
                            || key.equals(Profiles.CONFIGURATION))) {
                found.put(key, profile.getProfileValue());
            }
            if (!"pegasus".equals(profile.getProfileNamespace())) {
                Profiles.put(
                        profile.getProfileNamespace(), key, profile.getProfileValue(), found);
            }
        }
        return found;
    }

    /** Profiles of a site for jobs with a tag; Pegasus before 5.1.3 has none. */
    private void tags(SiteStore store) {
        try {
            for (Iterator<?> it = store.entryIterator(); it.hasNext(); ) {
                SiteCatalogEntry site = (SiteCatalogEntry) it.next();
                Map<String, Map<String, String>> found =
                        new TreeMap<String, Map<String, String>>();
                for (String tag : site.getTags()) {
                    found.put(tag, profiles(site.getTagProfiles(tag)));
                }
                work.tags.put(site.getSiteHandle(), found);
            }
        } catch (LinkageError error) {
            // No tags, and nothing is lost.
        }
    }

    private void stagingSites() {
        for (String site : work.sites.keySet()) {
            String staging = bag.getPlannerOptions().getStagingSite(site);
            if (staging != null) {
                work.staging.put(site, staging);
            }
        }
    }

    private void fileServers(SiteStore store) {
        for (Iterator<?> it = store.entryIterator(); it.hasNext(); ) {
            SiteCatalogEntry site = (SiteCatalogEntry) it.next();
            FileServer server =
                    site.selectHeadNodeScratchSharedFileServer(FileServer.OPERATION.put);
            if (server != null) {
                work.scratch.put(site.getSiteHandle(), server.getURLPrefix());
            }
        }
    }

    private void priorities() {
        for (String namespace : Profiles.OF_PRIORITIES) {
            for (String key : new String[] {Profiles.PRIORITY, Profiles.PRIORITY.toUpperCase()}) {
                String value = properties.getProperty(namespace + "." + key);
                Profiles.put(namespace, key, value, work.profiles);
            }
        }
    }

    private void programs(Mapper mapper) {
        Map<Integer, Set<String>> wanted = new TreeMap<Integer, Set<String>>();
        for (Task task : work.tasks) {
            if ("job".equals(task.kind)) {
                if (!wanted.containsKey(task.transformation)) {
                    wanted.put(task.transformation, new TreeSet<String>());
                }
                wanted.get(task.transformation).addAll(task.sites);
            }
        }
        for (Map.Entry<Integer, Set<String>> entry : wanted.entrySet()) {
            Work.Transformation program = work.transformations.get(entry.getKey());
            for (String site : entry.getValue()) {
                learn(mapper, program, site);
            }
        }
    }

    /** Run time and other profiles of a program at a site. */
    private static void learn(Mapper mapper, Work.Transformation program, String site) {
        Collection<?> entries;
        try {
            entries = mapper.getTCList(
                    program.namespace, program.shortName, program.version, site);
        } catch (RuntimeException error) {
            return; // a job with a hint whose program is in no catalog
        }
        Map<String, String> found = new TreeMap<String, String>();
        for (Object entry : entries == null ? new ArrayList<Object>() : entries) {
            Collection<?> profiles = ((TransformationCatalogEntry) entry).getProfiles();
            for (Object item : profiles == null ? new ArrayList<Object>() : profiles) {
                Profile profile = (Profile) item;
                String namespace = profile.getProfileNamespace();
                String key = profile.getProfileKey();
                if ("pegasus".equals(namespace) && RUNTIME.equals(key)) {
                    program.runtimes.putIfAbsent(site, profile.getProfileValue());
                }
                Profiles.put(namespace, key, profile.getProfileValue(), found);
            }
        }
        if (!found.isEmpty()) {
            program.profiles.put(site, found);
        }
    }

    private void output() {
        Collection<String> sites = bag.getPlannerOptions().getOutputSites();
        if (sites != null) {
            work.outputSites = new ArrayList<String>(new TreeSet<String>(sites));
        }
        try {
            work.submitDirectory = bag.getPlannerOptions().getSubmitDirectory();
            Object cleanup = bag.getPlannerOptions().getCleanup();
            work.cleanup = cleanup == null ? null : cleanup.toString();
        } catch (LinkageError error) {
            // A planner that does not say: nobody is told why, and all else is as ever.
        }
    }

    /** Those that stand in the workflow itself; others are in files, which ADON reads. */
    private void replicas(ADag workflow) {
        Map<String, Data> inputs = new HashMap<String, Data>();
        for (Data file : work.files) {
            if (!file.produced) {
                inputs.put(file.lfn, file);
            }
        }
        for (Iterator<?> it = workflow.getReplicaStore().replicaLocationIterator();
                it.hasNext(); ) {
            ReplicaLocation location = (ReplicaLocation) it.next();
            Data file = inputs.get(location.getLFN());
            if (file == null) {
                continue;
            }
            String size = location.getMetadata("size");
            if (size != null && size.matches("[0-9]{1,18}")) {
                file.learn(Long.parseLong(size));
            }
            file.checksum = location.getMetadata("checksum.value") != null;
            Set<String> seen = new HashSet<String>();
            for (Object item : location.getPFNList()) {
                ReplicaCatalogEntry entry = (ReplicaCatalogEntry) item;
                String site = entry.getResourceHandle();
                if (site != null && entry.getPFN() != null
                        && seen.add(site + " " + entry.getPFN())) {
                    file.places.add(new String[] {site, entry.getPFN()});
                }
            }
        }
    }

    /** In the order in which Pegasus believes them. */
    private void replicaFiles() {
        PlannerOptions options = bag.getPlannerOptions();
        for (String file : options.getCacheFiles()) {
            work.replicaFiles.add(new String[] {"File", file});
        }
        for (String file : options.getInheritedRCFiles()) {
            work.replicaFiles.add(new String[] {"File", file});
        }
        work.inputDirectories = new ArrayList<String>(
                new TreeSet<String>(options.getInputDirectories()));
        if ("JDBCRC".equalsIgnoreCase(properties.getProperty(REPLICA))) {
            for (String key : DATABASE) {
                String value = properties.getProperty(key);
                if (value != null) {
                    work.replicaProperties.put(key, value);
                }
            }
            return;
        }
        File catalog = bag.getReplicaCatalogFileSource();
        String path = catalog == null
                ? properties.getProperty(REPLICA + ".file") : catalog.getPath();
        if (path != null) {
            work.replicaFiles.add(
                    new String[] {properties.getProperty(REPLICA), path});
        }
    }
}
