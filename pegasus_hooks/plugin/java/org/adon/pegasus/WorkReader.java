package org.adon.pegasus;

import edu.isi.pegasus.planner.catalog.transformation.Mapper;
import edu.isi.pegasus.planner.classes.ADag;
import edu.isi.pegasus.planner.classes.Job;
import edu.isi.pegasus.planner.classes.PegasusFile;
import edu.isi.pegasus.planner.partitioner.graph.GraphNode;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/** Reads the planner's workflow: jobs, edges, files, and the sites that can run each job. */
final class WorkReader {

    /** Profile of the workflow's author: the site, in {@code selector} or (older) {@code hints}. */
    private static final String SITE_KEY = "execution.site";

    private final Mapper mapper;
    private final List<?> sites;
    private final Clustering clustering;
    private final Work work;
    private final Map<String, Integer> programs = new HashMap<String, Integer>();
    private final Map<String, Integer> files = new HashMap<String, Integer>();

    WorkReader(Mapper mapper, List<?> sites, Clustering clustering, String name) {
        this.mapper = mapper;
        this.sites = sites;
        this.clustering = clustering;
        this.work = new Work(name);
    }

    /** A job that can run nowhere has no sites. */
    Work read(ADag workflow) {
        List<GraphNode> nodes = new ArrayList<GraphNode>();
        for (Iterator<?> it = workflow.jobIterator(); it.hasNext(); ) {
            nodes.add((GraphNode) it.next());
        }
        // The planner's order is that of a hash map, and the same workflow shall be mapped alike.
        nodes.sort(Comparator.comparing(node -> job(node).getLogicalID()));
        Map<String, Integer> index = new HashMap<String, Integer>();
        for (GraphNode node : nodes) {
            index.put(job(node).getID(), work.tasks.size());
            work.tasks.add(task(job(node)));
        }
        for (int i = 0; i < nodes.size(); i++) {
            connect(work.tasks.get(i), nodes.get(i), index);
        }
        return work;
    }

    private static Job job(GraphNode node) {
        return (Job) node.getContent();
    }

    private Task task(Job job) {
        String hint = hint(job);
        Task.Target target = new JobTarget(job, hint != null);
        List<String> allowed;
        if (hint != null) {
            allowed = Collections.singletonList(hint);
        } else if (DataFlow.is(job)) {
            target = new DataFlow(job);
            allowed = sitesOfAll(((DataFlow) target).jobs());
        } else {
            allowed = sitesOf(job);
        }
        return new Task(
                job.getLogicalID(),
                target,
                program(job),
                kind(job),
                allowed,
                hint != null,
                text(job.vdsNS.get("group")),
                clustering.of(job),
                text(job.vdsNS.get("runtime")),
                text(job.vdsNS.get("cores")),
                profiles(job));
    }

    private static Map<String, String> profiles(Job job) {
        Map<String, String> found = new TreeMap<String, String>();
        Profiles.put(
                "condor", Profiles.PRIORITY, job.condorVariables.get(Profiles.PRIORITY), found);
        Profiles.put(
                "dagman", Profiles.PRIORITY, job.dagmanVariables.get("PRIORITY"), found);
        Profiles.put(
                "pegasus", Profiles.CONFIGURATION, job.vdsNS.get(Profiles.CONFIGURATION), found);
        Profiles.put("pegasus", Profiles.TAG, job.vdsNS.get(Profiles.TAG), found);
        return found;
    }

    private List<String> sitesOfAll(List<Job> jobs) {
        TreeSet<String> common = new TreeSet<String>(sitesOf(jobs.get(0)));
        for (Job job : jobs) {
            common.retainAll(sitesOf(job));
        }
        return new ArrayList<String>(common);
    }

    /** Sites that can run a job's transformation, sorted. The planner is asked once for each. */
    private List<String> sitesOf(Job job) {
        Work.Transformation program = work.transformations.get(program(job));
        if (program.sites == null) {
            TreeSet<String> able = new TreeSet<String>();
            Collection<?> found = mapper.getSiteList(
                    job.getTXNamespace(), job.getTXName(), job.getTXVersion(), sites);
            for (Object site : found == null ? Collections.emptyList() : found) {
                able.add((String) site);
            }
            program.sites = new ArrayList<String>(able);
        }
        return program.sites;
    }

    private int program(Job job) {
        String namespace = job.getTXNamespace();
        String version = job.getTXVersion();
        String name = (namespace == null || namespace.isEmpty() ? "" : namespace + "::")
                + job.getTXName() + (version == null || version.isEmpty() ? "" : ":" + version);
        Integer known = programs.get(name);
        if (known == null) {
            known = work.transformations.size();
            programs.put(name, known);
            work.transformations.add(
                    new Work.Transformation(name, namespace, job.getTXName(), version));
        }
        return known;
    }

    private void connect(Task task, GraphNode node, Map<String, Integer> index) {
        TreeSet<Integer> parents = new TreeSet<Integer>();
        for (Object parent : node.getParents()) {
            Integer found = index.get(job((GraphNode) parent).getID());
            if (found != null) {
                parents.add(found);
            }
        }
        task.parents = numbers(parents);
        Map<String, PegasusFile> reads = byName(job(node).inputFiles);
        Map<String, PegasusFile> writes = byName(job(node).outputFiles);
        // A checkpoint is both; it is an input like others when the job starts.
        writes.keySet().removeAll(reads.keySet());
        task.reads = indices(reads.values(), false);
        task.writes = indices(writes.values(), true);
    }

    private static Map<String, PegasusFile> byName(Set<?> files) {
        Map<String, PegasusFile> found = new TreeMap<String, PegasusFile>();
        for (Object item : files) {
            PegasusFile file = (PegasusFile) item;
            // Programs are no data: whether they move is decided by the planner later on.
            if (file.getType() != PegasusFile.EXECUTABLE_FILE) {
                found.put(file.getLFN(), file);
            }
        }
        return found;
    }

    private int[] indices(Collection<PegasusFile> uses, boolean written) {
        List<Integer> found = new ArrayList<Integer>();
        for (PegasusFile use : uses) {
            Integer known = files.get(use.getLFN());
            if (known == null) {
                known = work.files.size();
                files.put(use.getLFN(), known);
                work.files.add(new Data(use.getLFN()));
            }
            Data file = work.files.get(known);
            file.learn(use.getSize());
            file.produced |= written;
            file.wanted |= written && !use.getTransientTransferFlag();
            file.bypass &= written || bypasses(use);
            found.add(known);
        }
        return numbers(found);
    }

    private static boolean bypasses(PegasusFile use) {
        try {
            return use.doBypassStaging();
        } catch (LinkageError error) {
            return false; // Pegasus 4 has no such flag
        }
    }

    private static int[] numbers(Collection<Integer> values) {
        int[] found = new int[values.size()];
        int at = 0;
        for (int value : values) {
            found[at++] = value;
        }
        return found;
    }

    private static String kind(Job job) {
        String type = job.getClass().getSimpleName();
        return type.equals("DAXJob") ? "pegasusWorkflow"
                : type.equals("DAGJob") ? "condorWorkflow" : "job";
    }

    private static String hint(Job job) {
        String found = null;
        try {
            found = text(job.getSelectorProfiles().get(SITE_KEY));
        } catch (LinkageError error) {
            // Pegasus 4 knows only the older namespace.
        }
        return found == null ? text(job.hints.get(SITE_KEY)) : found;
    }

    private static String text(Object value) {
        return value == null || value.toString().isEmpty() ? null : value.toString();
    }
}
