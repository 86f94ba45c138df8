package org.adon.pegasus;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** A workflow as plain values: what is asked about, and what the built-in rule works on. */
final class Work {

    final String name;
    final List<Task> tasks = new ArrayList<Task>();
    final List<Data> files = new ArrayList<Data>();
    final List<Transformation> transformations = new ArrayList<Transformation>();

    /** Site to its {@code pegasus} profiles, and priorities as of {@link Task#profiles}. */
    final Map<String, Map<String, String>> sites = new TreeMap<String, Map<String, String>>();

    /** Site to the same of jobs with each tag. */
    final Map<String, Map<String, Map<String, String>>> tags =
            new TreeMap<String, Map<String, Map<String, String>>>();

    /** Site to the one at which {@code --staging-site} has its jobs' files staged. */
    final Map<String, String> staging = new TreeMap<String, String>();

    /** Site to the URL of its scratch space, as the server that writes there knows it. */
    final Map<String, String> scratch = new TreeMap<String, String>();

    /** Properties by which files are staged. */
    final Map<String, String> properties = new TreeMap<String, String>();

    /** Where results go, sorted; empty where they stay. */
    List<String> outputSites = new ArrayList<String>();

    /** Pairs of type (null where not said) and path of files that tell where inputs lie. */
    final List<String[]> replicaFiles = new ArrayList<String[]>();

    /** Of a replica catalog in a database: Pegasus's properties. */
    final Map<String, String> replicaProperties = new TreeMap<String, String>();

    /** Priorities that properties give all jobs without one, as of {@link Task#profiles}. */
    final Map<String, String> profiles = new TreeMap<String, String>();

    List<String> inputDirectories = new ArrayList<String>();
    String dataConfiguration;

    /** Where the planner writes; null where it does not say. */
    String submitDirectory;

    /** {@code --cleanup}; null where the planner does not say, or does as it usually does. */
    String cleanup;

    Work(String name) {
        this.name = name;
    }

    /** A program, the sites that can run it, and its profiles there that count. */
    static final class Transformation {
        final String name;
        final String namespace;
        final String shortName;
        final String version;
        final Map<String, String> runtimes = new TreeMap<String, String>();

        /** Site to profiles as of {@link Task#profiles}. */
        final Map<String, Map<String, String>> profiles =
                new TreeMap<String, Map<String, String>>();

        /** Null while no job needs to know. */
        List<String> sites;

        Transformation(String name, String namespace, String shortName, String version) {
            this.name = name;
            this.namespace = namespace;
            this.shortName = shortName;
            this.version = version;
        }
    }
}
